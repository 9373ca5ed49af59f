package sessionless

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// Errors of requests that no process gets, and of processes that end.
var (
	errCalls      = fmt.Errorf("%w: the limit of calls in flight is reached", fault.ErrBusy)
	errListens    = fault.Busy("the limit of open subscriptions is reached")
	errUnread     = fault.Busy("the server does not read its input, and too much waits for it")
	errGone       = errors.New("the server's process has just ended")
	errIdle       = errors.New("the process was idle")
	errStuck      = errors.New("the server's process does not answer, and was replaced")
	errClientSlow = errors.New("the client reads too slowly, and too much waits for it")
	errNoRoom     = errors.New("the adapter has no room for a message of the server: its memory is full of messages that clients have not read")
)

// process is one process of the server, or a Translator, from its start to its end, with its
// calls.
type process struct {
	mux.Conn[*Call] // guarded by mu
	*shared

	server     mux.Server    // nil if there is a translator
	translator Translator    // nil if there is a server
	place      *places.Place // nil if the process needs none
	ended      func(*process, error)
	started    time.Time
	tools      toolLists
	requested  sync.Once // for the first request that the process made

	mu            sync.Mutex
	subscriptions subscriptions
	open          map[*Call]struct{}
	working       mux.Attribution // the requests that the process works on, whether a client waits or not
	listens       int             // of open, subscriptions of clients
	inFlight      int             // of open, other requests of clients
	sending       int             // bytes that wait for the process
	buffered      int             // bytes that wait for clients, or that clients read now
	account       *budget.Account // of these
	drained       chan struct{}   // closed when no client has an open request; nil before drain
	retired       bool            // it takes no more requests, and ends when it has none
	idle          *time.Timer     // runs while nothing is open; nil for a translator, which ends processes itself
	unused        time.Time       // since when, if nothing is open
	tasked        bool            // it has begun a task
	continued     bool            // it has begun what a later request may continue
	hasSessions   bool            // it has had requests of sessions that the adapter translates
}

// newProcess returns a process of the server, which leaves its place when it ends. The place may be nil.
func newProcess(server mux.Server, place *places.Place, common *shared, ended func(*process, error)) *process {
	p := &process{server: server, place: place, shared: common, ended: ended}
	p.init()
	p.mu.Lock() // the timer may fire before the field is set
	p.idle = time.AfterFunc(common.options.Limits.IdleTimeout, p.endIdle)
	p.mu.Unlock()
	p.Serve(p.receive, p.fail)
	if place != nil {
		place.Fill(p)
	}
	return p
}

// newTranslated returns a Translator as a process.
func newTranslated(translator Translator, common *shared, ended func(*process, error)) *process {
	p := &process{translator: translator, shared: common, ended: ended}
	p.init()
	return p
}

func (p *process) init() {
	limits := &p.options.Limits
	p.started, p.unused, p.open = time.Now(), time.Now(), map[*Call]struct{}{}
	p.account = limits.Memory.Account(p.giveWay)
	p.Init(p.server, &p.mu, mux.Options{StuckTimeout: limits.StuckTimeout, Fail: p.fail})
}

func (p *process) isRetired() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.retired
}

// load is how many requests of clients are in flight.
func (p *process) load() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inFlight
}

// takesRequests says whether the process has neither ended nor retired.
func (p *process) takesRequests() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.DeadLocked() == nil && !p.retired
}

// fail ends the process, once. Calls in flight get an error.
func (p *process) fail(reason error) {
	p.failIf(reason, func() bool { return true })
}

// endIdle ends a process that has no request.
func (p *process) endIdle() {
	p.failIf(errIdle, func() bool { return p.idle != nil && !p.neededLocked() })
}

// endDispensable ends a process that no client misses once there are no new requests of clients without sessions.
func (p *process) endDispensable() { p.failIf(errIdle, p.isDispensableLocked) }

func (p *process) isDispensableLocked() bool {
	return p.idle != nil && !p.neededLocked() && !p.tasked && !p.continued && !p.hasSessions
}

// failIf is fail on a condition, which is checked with the lock. It reports whether it has ended the
// process.
func (p *process) failIf(reason error, condition func() bool) bool {
	if errors.Is(reason, mux.ErrUnread) {
		reason = errStuck
	}
	reason = fault.ForClients(reason)
	p.mu.Lock()
	if !condition() || !p.EndLocked(reason) {
		p.mu.Unlock()
		return false
	}
	if p.idle != nil {
		p.idle.Stop()
	}
	p.subscriptions.stopForeignLocked()
	p.mu.Unlock()
	if p.translator != nil {
		p.translator.Close()
	} else {
		p.server.Close()
	}
	if p.place != nil {
		p.place.Leave()
	}
	p.continuations.forget(p)
	p.hub.leave(p)
	p.ended(p, reason)
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.failLocked(reason.Error())
	}
	return true
}

// call makes a request of a client, or of a session that the adapter translates. A process
// gets no subscription as it stands, if the adapter understands all of its filter.
func (p *process) call(ctx context.Context, request session.Message, internal bool) (*Call, error) {
	c := newCall(p, request)
	if c.internal = internal; !internal || request.From.Identity() != nil {
		c.principal, c.owned = request.From.Principal, true
	}
	if c.listen && p.translator == nil && !p.options.ManyListens {
		if f, more, err := subscription.Parse(request.Bytes, request.Envelope.Params); err == nil && !more {
			return p.subscribe(c, request, f)
		}
	}
	return p.send(ctx, c, request)
}

// send sends a request to the process. The caller must release the Call.
func (p *process) send(ctx context.Context, c *Call, request session.Message) (*Call, error) {
	err := p.register(c, request)
	if err != nil {
		return nil, err
	}
	if p.translator != nil {
		err = p.translator.Call(ctx, request, (*recipient)(c))
	} else {
		err = p.write(c, request) //nolint:contextcheck // see there
	}
	p.mu.Lock()
	p.sending -= len(request.Bytes)
	if err != nil {
		c.answered = true // there is nothing to cancel
		p.working.End(c.number)
	} else {
		p.ReadLocked()
	}
	p.mu.Unlock()
	if err == nil {
		return c, nil
	}
	c.Release()
	return nil, p.sendFailed(err)
}

// buffers are for requests on their way to a process. Large ones are not kept.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const largestBuffer = 64 << 10

// write writes a request to the process. The context of one client must not leave half a
// message behind, because that would break the connection for all clients.
func (p *process) write(c *Call, request session.Message) error {
	buffer := buffers.Get().(*[]byte) // nothing else is put there
	var edits rpc.Edits
	c.renumber(&edits, request)
	*buffer = edits.AppendEdited((*buffer)[:0], request.Bytes)
	err := p.server.Send(context.Background(), session.Message{
		Bytes: *buffer, Envelope: edits.MovedEnvelope(request.Envelope), From: request.From,
	})
	if cap(*buffer) <= largestBuffer {
		buffers.Put(buffer)
	}
	return err
}

// sendFailed distinguishes a process that has ended from one that does not read. Only in the
// first case does another process get the request.
func (p *process) sendFailed(err error) error {
	switch {
	case errors.Is(err, fault.ErrBusy) || errors.Is(err, context.Canceled):
		return err
	case mux.IsUnread(err):
		p.failIfStuck()
		return fmt.Errorf("%w: %w", errUnread, err)
	}
	select {
	case <-p.Over():
		return errGone
	case <-time.After(mux.ReasonGrace):
		return err
	}
}

// register makes a call known, so that its answer finds it. Limits are for clients.
func (p *process) register(c *Call, request session.Message) error {
	limits := &p.options.Limits
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.DeadLocked() != nil || p.retired && !c.own:
		return errGone
	case p.drained != nil:
		return fault.ErrDraining
	case c.own:
	case c.listen && p.listens >= limits.Listens:
		return errListens
	case !c.listen && p.inFlight >= limits.Calls:
		return errCalls
	case p.sending > limits.SendingBytes:
		return errUnread
	}
	c.number = p.NumberLocked()
	c.sent, c.heard = time.Now(), p.HeardLocked()
	p.AddLocked(c.number, c)
	p.open[c] = struct{}{}
	p.sending += len(request.Bytes)
	p.countLocked(c, 1)
	if c.isWorkLocked() {
		p.working.Begin(c.number)
	}
	return nil
}

// isWorkLocked says whether the process works on a call that is about a client's data. Of the
// adapter's own requests, only a subscription to resources is, because clients name them. One
// to lists says nothing of any client, and often overlaps with a call: the adapter opens it
// when a session begins. A Translator knows its work itself.
func (c *Call) isWorkLocked() bool {
	if c.process.translator != nil || c.answered {
		return false
	}
	return !c.own || c.listen && len(c.process.subscriptions.requested.URIs) > 0
}

func (p *process) countLocked(c *Call, by int) {
	p.hasSessions = p.hasSessions || c.internal
	switch {
	case c.own:
	case c.listen:
		p.listens += by
	default:
		p.inFlight += by
	}
}

// forgetLocked is for a call that the process has answered, or that no client waits for.
func (p *process) forgetLocked(c *Call) { p.DropLocked(c.number) }

// closeLocked is for a call whose client has its answer, or has gone.
func (p *process) closeLocked(c *Call) {
	if _, open := p.open[c]; !open {
		return
	}
	p.forgetLocked(c)
	p.unsubscribeLocked(c)
	if c.listening {
		p.hub.remove(p.share, c)
	}
	if c.mirrored != nil {
		go c.mirrored.unmirror(c) // a goroutine that holds another process's lock may wait for this one's
	}
	delete(p.open, c)
	p.takenLocked(c, c.buffered)
	c.inbox, c.writing = nil, 0
	p.countLocked(c, -1)
	p.unused = time.Now()
	switch {
	case p.clientsLocked() > 0 || c.own && c.listen:
	case p.drained != nil:
		if !c.own { // which a drain does not wait for
			close(p.drained)
		}
	case p.retired:
		go p.fail(errStuck)
	default:
		p.restLocked(c)
	}
}

// restLocked is for a process whose last call has been closed.
func (p *process) restLocked(last *Call) {
	switch {
	case p.refusing.Load() && !last.own && p.isDispensableLocked():
		go p.endDispensable()
	case p.idle != nil:
		p.idle.Reset(p.options.Limits.IdleTimeout) // endIdle looks for new requests
	}
}

// neededLocked says whether the process has a request. The adapter's own subscription does
// not count, because it is there for those of clients.
func (p *process) neededLocked() bool {
	for c := range p.open {
		if !c.own || !c.listen {
			return true
		}
	}
	return false
}

// clientsLocked is how many requests of clients are open.
func (p *process) clientsLocked() int { return p.inFlight + p.listens }

// drain ends subscriptions (N-05) and takes no more requests. The channel is closed when no
// client has an open request.
func (p *process) drain() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drained != nil {
		return p.drained
	}
	p.drained = make(chan struct{})
	if p.clientsLocked() == 0 {
		close(p.drained)
	}
	p.completeListensLocked(true)
	return p.drained
}

// endListens ends subscriptions of clients of this revision.
func (p *process) endListens() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.completeListensLocked(false)
}

// completeListensLocked ends subscriptions of clients of this revision, and those of sessions
// that the adapter translates if internal is true.
func (p *process) completeListensLocked(internal bool) {
	for c := range p.open {
		if c.listen && !c.own && (internal || !c.internal) {
			c.completeLocked()
		}
	}
}

// end drains the process until the context ends, and then ends it.
func (p *process) end(ctx context.Context) {
	select {
	case <-p.drain():
	case <-p.Over():
	case <-ctx.Done():
	}
	p.fail(fault.ErrDraining)
}

// takenLocked counts so many bytes fewer that wait for the client of a call.
func (p *process) takenLocked(c *Call, bytes int) {
	c.buffered -= bytes
	p.buffered -= bytes
	p.account.Change(-bytes)
}

// slowestLocked is the call with the largest backlog.
func (p *process) slowestLocked() (slowest *Call) {
	for c := range p.open {
		if slowest == nil || c.backlog() > slowest.backlog() {
			slowest = c
		}
	}
	return slowest
}

// giveWay ends the request that holds most, of those whose clients do not read.
func (p *process) giveWay() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var most *Call
	for c := range p.open {
		if c.pressure.Slow(c.buffered, c.reads) && (most == nil || c.buffered > most.buffered) {
			most = c
		}
	}
	if most != nil {
		most.giveUpLocked(errClientSlow)
	}
}
