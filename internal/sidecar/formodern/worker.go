package formodern

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Why processes are ended.
var (
	errEvicted  = errors.New("the server process made room for another")
	errIdle     = errors.New("the server process was not used")
	errStuck    = errors.New("the server did not end a call that was cancelled")
	errUnread   = errors.New("the server does not read what it is sent")
	errSilent   = errors.New("the server does not answer any more")
	errNoAnswer = errors.New("the server has not answered in time")
	errGone     = errors.New("the server process has just ended")
)

// worker is one process from its start to its end.
type worker struct {
	server *Server
	group  *group
	child  LegacyServer
	hello  hello // set before anybody else knows the worker
	over   chan struct{}

	// Guarded by the server's mutex.
	number   uint64              // of the last request sent
	pending  map[uint64]*pending // requests without an answer
	calls    map[*call]struct{}  // that the process works on
	progress map[uint64]*call    // by the token that the process knows
	logged   map[*call]struct{}  // calls that want log messages
	level    level               // that the process was told
	lease    *call               // that may ask
	inFlight int                 // calls, and others who use the process
	listed   bool                // it is of its group's workers
	touched  time.Time           // when it was used last
	idle     *time.Timer
	queue    []outgoing // to be written without anybody waiting
	queued   int        // bytes of these
	writing  bool
	unread   time.Time   // since when it does not read, if so
	heard    uint64      // how many messages it has sent
	watch    *time.Timer // runs while it has to say something
	silent   bool        // and has not
	dead     error
}

// pending is a request at a process: of a client's call, or our own.
type pending struct {
	call *call
	own  chan session.Message // has room for the answer; closed without one at the end
	late *time.Timer          // of our own
}

// launch starts a process and agrees with it.
func (g *group) launch(ctx context.Context) (*worker, error) {
	server, err := g.server.obtain(ctx, g.caller)
	if err != nil {
		return nil, err
	}
	w := &worker{
		server: g.server, group: g, child: server, over: make(chan struct{}), touched: time.Now(),
		pending: map[uint64]*pending{}, calls: map[*call]struct{}{}, progress: map[uint64]*call{}, logged: map[*call]struct{}{},
	}
	server.Serve(w.receive, w.fail)
	return w, w.initialize(ctx)
}

// fullPause is between two looks for a place that a process has left.
const fullPause = 50 * time.Millisecond

// obtain starts a process. If others have all that there may be, one of ours that is not
// used makes room, which may take it a moment.
func (s *Server) obtain(ctx context.Context, from *caller.Caller) (LegacyServer, error) {
	patience := time.Now().Add(s.options.Limits.LeaseTimeout)
	for try := 0; ; try++ {
		server, err := s.options.Acquire(ctx, from)
		if !errors.Is(err, child.ErrFull) || time.Now().After(patience) {
			return server, err
		}
		if try == 0 {
			s.mu.Lock()
			s.evictLocked(anyGroup)
			s.mu.Unlock()
		}
		select {
		case <-time.After(fullPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (w *worker) initialize(ctx context.Context) error {
	s := w.server
	s.mu.Lock()
	answered := w.askLocked("initialize", initializeParams(w.group.capabilities), s.options.Limits.StartTimeout)
	s.mu.Unlock()
	answer, err := w.await(ctx, answered)
	if err != nil {
		return fmt.Errorf("initialize server: %w", err)
	}
	if w.hello, err = readHello(answer, s.options.Serves); err != nil {
		return err
	}
	// Whatever is sent from now on is behind this.
	if err := w.child.Send(context.WithoutCancel(ctx), w.group.caller, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)); err != nil {
		return fmt.Errorf("initialize server: %w", err)
	}
	return nil
}

// askLocked sends a request of our own, which is forgotten if it has no answer in time.
// There need not be anybody who waits for it.
func (w *worker) askLocked(method, params string, within time.Duration) <-chan session.Message {
	w.number++
	number := w.number
	p := &pending{own: make(chan session.Message, 1)}
	if w.dead != nil {
		close(p.own)
		return p.own
	}
	w.pending[number] = p
	p.late = time.AfterFunc(within, func() { w.giveUp(number) })
	w.enqueueLocked(outgoing{
		text:    []byte(`{"jsonrpc":"2.0","id":` + strconv.FormatUint(number, 10) + `,"method":"` + method + `","params":{` + params + `}}`),
		request: true,
	})
	return p.own
}

func (w *worker) giveUp(number uint64) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if p := w.pending[number]; p != nil {
		delete(w.pending, number)
		close(p.own)
	}
}

// await waits for the answer to a request of our own.
func (w *worker) await(ctx context.Context, answered <-chan session.Message) (session.Message, error) {
	select {
	case answer, ok := <-answered:
		if ok {
			return answer, nil
		}
		if err := w.deadBy(); err != nil {
			return answer, err
		}
		return answer, errNoAnswer
	case <-ctx.Done():
		return session.Message{}, fmt.Errorf("wait for the server to answer: %w", ctx.Err())
	}
}

func (w *worker) deadBy() error {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	return w.dead
}

// usedLocked says whether a process cannot be ended without anybody noticing.
func (w *worker) usedLocked() bool {
	return w.inFlight > 0 || w.lease != nil || w.group.holder == w && len(w.group.listens) > 0
}

func (w *worker) cancelling() bool { return w.lease != nil && w.lease.cancelled }

// releaseLocked says that a process is used by one less.
func (w *worker) releaseLocked(c *call) {
	w.inFlight--
	if c != nil && w.lease == c {
		w.lease = nil
	}
	w.touched = time.Now()
	w.group.lastUsed = w.touched
	if w.silent && w.inFlight == 0 && w.listed {
		w.endSilentLocked()
	}
	w.server.wakeLocked()
}

func (w *worker) release() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.releaseLocked(nil)
}

// beIdleLocked ends the process when it has not been used for long enough.
func (w *worker) beIdleLocked() {
	w.idle = time.AfterFunc(w.server.options.Limits.IdleTimeout, w.endIdle)
}

func (w *worker) endIdle() {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.dead != nil {
		return
	}
	left := s.options.Limits.IdleTimeout - time.Since(w.touched)
	switch {
	case w.usedLocked():
		w.idle.Reset(s.options.Limits.IdleTimeout)
	case left > 0:
		w.idle.Reset(left)
	default:
		w.dismissLocked(errIdle)
	}
}

// dismissLocked ends a process. What it leaves is seen to by another goroutine, but
// nobody gets it any more.
func (w *worker) dismissLocked(reason error) {
	w.unlistLocked()
	go w.fail(reason)
}

// unlistLocked gives the process's place to another.
func (w *worker) unlistLocked() {
	if !w.listed {
		return
	}
	w.listed = false
	w.server.children--
	w.group.workers = slices.DeleteFunc(w.group.workers, func(other *worker) bool { return other == w })
	w.server.wakeLocked()
}

// fail ends the process, once, and with it its calls.
func (w *worker) fail(reason error) {
	s := w.server
	s.mu.Lock()
	if w.dead != nil {
		s.mu.Unlock()
		return
	}
	w.dead = child.ForClients(reason)
	close(w.over)
	wasListed := w.listed
	w.unlistLocked()
	for _, timer := range []*time.Timer{w.idle, w.watch} {
		if timer != nil {
			timer.Stop()
		}
	}
	failed := w.buryLocked()
	w.group.holderEndedLocked(w)
	w.group.tidyLocked()
	s.mu.Unlock()
	w.child.Close()
	if wasListed {
		s.options.Log.V(1).Info("A server process for clients without sessions ended", "reason", w.dead.Error())
	}
	for _, id := range failed {
		s.refuse(id, session.CodeInternal, w.dead.Error())
	}
}

// buryLocked ends what the process had in flight, and returns the ids of clients that
// have to be told.
func (w *worker) buryLocked() (ids [][]byte) {
	for _, p := range w.pending {
		if p.own != nil {
			p.late.Stop()
			close(p.own)
		}
	}
	clear(w.pending)
	for c := range w.calls {
		if !c.sent {
			continue // whoever sends it finds out, and may try another process
		}
		w.server.doneLocked(c)
		if id := w.server.takeLocked(c); id != nil {
			ids = append(ids, id)
		}
		if c.park != nil {
			w.server.forgetParkLocked(c.park)
		}
	}
	return ids
}

// keep is a message that outlives the call of receive.
func keep(message session.Message) session.Message {
	if message.Owned {
		return message
	}
	text := bytes.Clone(message.Bytes)
	envelope, err := rpc.ScanLenient(text) // strings of the other alias what is not ours
	if err != nil {
		return message // it was scanned before
	}
	return session.Message{Bytes: text, Envelope: envelope, Owned: true}
}
