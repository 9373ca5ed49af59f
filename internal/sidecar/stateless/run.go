package stateless

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// Errors of requests that are not passed on.
var (
	errCalls      = fmt.Errorf("%w: as many calls are in flight there as may be", fault.ErrBusy)
	errListens    = fault.Busy("as many subscriptions are open as may be")
	errUnread     = fault.Busy("the server does not read what it is sent, and too much waits for it")
	errGone       = errors.New("the server's process has just ended")
	errIdle       = errors.New("nobody needed the process")
	errHangs      = errors.New("the server's process does not answer, and was replaced")
	errClientSlow = errors.New("the client does not read what it is sent, and too much waits for it")
	errNoRoom     = errors.New("the adapter has no room for what the server sent: its memory is full of messages that clients have not read")
)

// run is one process from its start to its end, with the requests that it serves.
type run struct {
	mux.Conn[*call] // guarded by mu

	server     mux.Server // nil if there is a translator
	translator Translator // nil if there is a server
	options    *Options
	metrics    *Metrics
	ended      func(*run, error)
	began      time.Time
	tools      toolLists

	mu        sync.Mutex
	hub       hub
	open      map[*call]struct{}
	working   mux.Attribution    // what the process works on, whether a client waits or not
	listens   int                // of open, subscriptions of clients
	inFlight  int                // of open, other requests of clients
	sending   int                // bytes that wait for the process
	waiting   int                // bytes that wait for clients, or are written to them
	account   *budget.Account    // of these
	requests  int                // that the process made
	emptied   chan struct{}      // when it drains; closed when nothing is open
	retired   bool               // it takes no more requests, and ends when it has none
	noteBegun func(*run, []mark) // is told what the process has begun; nil for the first
	idle      *time.Timer        // runs while nothing is open; nil for a stand-in, which ends processes itself
}

func newRun(server mux.Server, translator Translator, options *Options, metrics *Metrics, ended func(*run, error)) *run {
	r := &run{
		server: server, translator: translator, options: options, metrics: metrics, ended: ended, began: time.Now(),
		open: map[*call]struct{}{},
	}
	r.account = options.Limits.Memory.Account(r.giveWay)
	r.Init(server, &r.mu, mux.Options{StuckTimeout: options.Limits.StuckTimeout, Fail: r.fail})
	if translator == nil {
		r.mu.Lock() // it may fire before it is there
		r.idle = time.AfterFunc(options.Limits.IdleTimeout, r.endIdle)
		r.mu.Unlock()
		r.Serve(r.receive, r.fail)
	}
	return r
}

func (r *run) isRetired() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.retired
}

// fail ends the process, once. Calls in flight get an error.
func (r *run) fail(reason error) {
	r.failIf(reason, func() bool { return true })
}

// endIdle ends a process that nobody needs.
func (r *run) endIdle() {
	r.failIf(errIdle, func() bool { return r.idle != nil && !r.neededLocked() })
}

func (r *run) failIf(reason error, condition func() bool) {
	if errors.Is(reason, mux.ErrUnread) {
		reason = errHangs
	}
	reason = fault.ForClients(reason)
	r.mu.Lock()
	if !condition() || !r.EndLocked(reason) {
		r.mu.Unlock()
		return
	}
	if r.idle != nil {
		r.idle.Stop()
	}
	r.mu.Unlock()
	if r.translator != nil {
		r.translator.Close()
	} else {
		r.server.Close()
	}
	r.ended(r, reason)
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		c.failLocked(reason.Error())
	}
}

// call begins a client's request. A subscription of a kind that we know does not reach
// a process as such.
func (r *run) call(ctx context.Context, request session.Message, by side) (*call, error) {
	c := newCall(r, request)
	if c.inside = by == inside; !c.inside {
		c.principal = request.From.Principal
	}
	if string(request.Envelope.Method) == methodListen && r.translator == nil && !r.options.ManyListens {
		if f, more, err := subscription.Parse(request.Bytes, request.Envelope.Params); err == nil && !more {
			return r.join(c, request, f)
		}
	}
	return r.send(ctx, c, request)
}

// begin sends a request of our own, on behalf of a client if request.From says so.
func (r *run) begin(ctx context.Context, request session.Message) (*call, error) {
	c := newCall(r, request)
	c.own = true
	return r.send(ctx, c, request)
}

// send sends a request to the process. Whoever calls it must release the call.
func (r *run) send(ctx context.Context, c *call, request session.Message) (*call, error) {
	err := r.register(c, request)
	if err != nil {
		return nil, err
	}
	if r.translator != nil {
		err = r.translator.Call(ctx, request, c)
	} else {
		// A client's deadline must not leave half a message behind, which would be the
		// end of all.
		err = r.server.Send(context.Background(), c.toProcess(request)) //nolint:contextcheck // see above
	}
	r.mu.Lock()
	r.sending -= len(request.Bytes)
	if err != nil {
		c.answered = true // there is nothing to cancel
		r.working.End(c.number)
	} else {
		r.ReadLocked()
	}
	r.mu.Unlock()
	if err == nil {
		return c, nil
	}
	c.release()
	return nil, r.sendFailed(err)
}

// sendFailed tells a process that ended, after which the next one can be tried, from
// one that does not read.
func (r *run) sendFailed(err error) error {
	switch {
	case errors.Is(err, fault.ErrBusy) || errors.Is(err, context.Canceled):
		return err
	case mux.IsUnread(err):
		r.noteUnread()
		return fmt.Errorf("%w: %w", errUnread, err)
	}
	select {
	case <-r.Over():
		return errGone
	case <-time.After(mux.ReasonGrace):
		return err
	}
}

// register makes a call known, so that its answer finds it. Limits are for clients.
func (r *run) register(c *call, request session.Message) error {
	limits := &r.options.Limits
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.DeadLocked() != nil || r.retired && !c.own:
		return errGone
	case r.emptied != nil:
		return fault.ErrDraining
	case c.own:
	case c.listen && r.listens >= limits.Listens:
		return errListens
	case !c.listen && r.inFlight >= limits.Calls:
		return errCalls
	case r.sending > limits.SendingBytes:
		return errUnread
	}
	c.number = r.NumberLocked()
	c.began, c.before = time.Now(), r.HeardLocked()
	r.AddLocked(c.number, c)
	r.open[c] = struct{}{}
	r.sending += len(request.Bytes)
	r.countLocked(c, 1)
	if c.works() {
		r.working.Begin(c.number)
	}
	return nil
}

// works says whether the process works on a call, and on something of a client's: other requests
// of our own are about no client's data. What a Translator makes of a call is its own affair.
func (c *call) works() bool {
	return c.run.translator == nil && !c.answered && (!c.own || c.listen)
}

func (r *run) countLocked(c *call, by int) {
	switch {
	case c.own:
	case c.listen:
		r.listens += by
	default:
		r.inFlight += by
	}
}

// forgetLocked is for a call that the process has answered, or that nobody waits for.
func (r *run) forgetLocked(c *call) { r.DropLocked(c.number) }

// closeLocked is for a call whose client has its answer, or has gone.
func (r *run) closeLocked(c *call) {
	if _, open := r.open[c]; !open {
		return
	}
	r.forgetLocked(c)
	r.leaveLocked(c)
	delete(r.open, c)
	r.takenLocked(c, c.waiting)
	c.inbox, c.inHand = nil, 0
	r.countLocked(c, -1)
	switch {
	case r.clientsLocked() > 0 || c.own && c.listen:
	case r.emptied != nil:
		if !c.own { // which nobody waits for
			close(r.emptied)
		}
	case r.retired:
		go r.fail(errHangs)
	case r.idle != nil:
		r.idle.Reset(r.options.Limits.IdleTimeout) // it may fire while somebody is there
	}
}

// neededLocked says whether anything is asked of the process. Our own subscription is
// there for those of clients.
func (r *run) neededLocked() bool {
	for c := range r.open {
		if !c.own || !c.listen {
			return true
		}
	}
	return false
}

// clientsLocked is how many requests of clients are open.
func (r *run) clientsLocked() int { return r.inFlight + r.listens }

// drain ends subscriptions (N-05) and takes no more requests. The channel is closed
// when none is left.
func (r *run) drain() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.emptied != nil {
		return r.emptied
	}
	r.emptied = make(chan struct{})
	if r.clientsLocked() == 0 {
		close(r.emptied)
	}
	for c := range r.open {
		if c.listen && !c.own {
			c.completeLocked()
		}
	}
	return r.emptied
}

// endListens ends subscriptions of clients of this revision.
func (r *run) endListens() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		if c.listen && !c.own && !c.inside {
			c.completeLocked()
		}
	}
}

// end drains the process until the context ends, and then ends it.
func (r *run) end(ctx context.Context) {
	select {
	case <-r.drain():
	case <-r.Over():
	case <-ctx.Done():
	}
	r.fail(fault.ErrDraining)
}

// slowestLocked is the call that most waits for, beside what is being written.
func (r *run) slowestLocked() (slowest *call) {
	for c := range r.open {
		if slowest == nil || c.unwritten() > slowest.unwritten() {
			slowest = c
		}
	}
	return slowest
}

// giveWay ends the request that holds most, of those whose clients do not read.
func (r *run) giveWay() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var most *call
	for c := range r.open {
		if c.pressed.Slow(c.waiting, c.takes) && (most == nil || c.waiting > most.waiting) {
			most = c
		}
	}
	if most != nil {
		most.giveUpLocked(errClientSlow)
	}
}
