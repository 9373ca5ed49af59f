package tomodern

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/version"
)

// Why processes are ended.
var (
	errEvicted = errors.New("the server process made room for another")
	errIdle    = errors.New("the server process was not used")
	errStuck   = errors.New("the server did not end a call that was cancelled")
	errSilent  = errors.New("the server does not answer any more")
	errGone    = errors.New("the server process has just ended")
)

// worker is one process from its start to its end.
type worker struct {
	mux.Conn[*call] // guarded by the server's mutex

	server *Server
	group  *group
	child  mux.Server
	hello  hello // set before anybody else knows the worker

	// Guarded by the server's mutex.
	calls    map[*call]struct{} // that the process works on
	progress map[uint64]*call   // by the token that the process knows
	working  mux.Attribution    // of all calls, those that are cancelled too, by their first numbers
	logged   map[*call]struct{} // calls that want log messages
	level    level              // that the process was told
	lease    *call              // that may ask
	inFlight int                // calls, and others who use the process
	listed   bool               // it is of its group's workers
	touched  time.Time          // when it was used last
	idle     *time.Timer
	watch    *time.Timer // runs while it has to say something
	silent   bool        // and has not
}

// launch starts a process and agrees with it.
func (g *group) launch(ctx context.Context) (*worker, error) {
	server, err := g.server.obtain(ctx, g.caller)
	if err != nil {
		return nil, err
	}
	w := &worker{
		server: g.server, group: g, child: server, touched: time.Now(),
		calls: map[*call]struct{}{}, progress: map[uint64]*call{}, logged: map[*call]struct{}{},
	}
	w.Init(server, &g.server.mu, mux.Options{
		StuckTimeout: g.server.options.Limits.StuckTimeout, Fail: w.fail, Heard: w.heardLocked, ReadsAgain: g.server.wakeLocked,
	})
	w.Serve(w.receive, w.fail)
	return w, w.initialize(ctx)
}

// fullPause is between two looks for a place that a process has left.
const fullPause = 50 * time.Millisecond

// obtain starts a process. If others have all that there may be, one of ours that is not
// used makes room, which may take it a moment.
func (s *Server) obtain(ctx context.Context, from *caller.Caller) (mux.Server, error) {
	patience := time.Now().Add(s.options.Limits.LeaseTimeout)
	for try := 0; ; try++ {
		server, err := s.options.Acquire(ctx, from)
		if !errors.Is(err, fault.ErrFull) || time.Now().After(patience) {
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
	params := rpc.InitializeParams(front.Revision20251125, w.group.capabilities.text(), version.Get().Version)
	answered := w.askLocked(rpc.MethodInitialize, params, s.options.Limits.StartTimeout)
	s.mu.Unlock()
	answer, err := w.Await(ctx, answered)
	if err != nil {
		return fmt.Errorf("initialize server: %w", err)
	}
	if w.hello, err = readHello(answer, s.options.Serves); err != nil {
		return err
	}
	// Whatever is sent from now on is behind this.
	if err := w.child.Send(context.WithoutCancel(ctx), session.Message{Bytes: []byte(rpc.Initialized), From: w.group.caller}); err != nil {
		return fmt.Errorf("initialize server: %w", err)
	}
	return nil
}

// queueBytes is how much may wait for a process to read, beside calls that clients wait for.
const queueBytes = 1 << 20

// sendLocked has a message written after those before it, without waiting.
func (w *worker) sendLocked(message []byte) {
	if !w.floodedLocked() {
		w.PostLocked(message)
	}
}

// askLocked makes a request of the adapter's own.
func (w *worker) askLocked(method, params string, within time.Duration) <-chan session.Message {
	if w.floodedLocked() {
		unasked := make(chan session.Message)
		close(unasked)
		return unasked
	}
	return w.AskLocked(method, params, within)
}

// floodedLocked ends a process that too much waits for.
func (w *worker) floodedLocked() bool {
	if w.QueuedLocked() <= queueBytes || w.DeadLocked() != nil {
		return false
	}
	w.dismissLocked(mux.ErrUnread)
	return true
}

// sendLater has messages written that were not taken when their sender waited for it.
func (w *worker) sendLater(messages [][]byte) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for _, message := range messages {
		w.sendLocked(message)
	}
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
	if w.DeadLocked() != nil {
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
	reason = fault.ForClients(reason)
	if !w.EndLocked(reason) {
		s.mu.Unlock()
		return
	}
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
		s.options.Log.V(1).Info("A server process for clients without sessions ended", "reason", reason.Error())
	}
	for _, to := range failed {
		refuse(to, rpc.CodeInternal, reason.Error())
	}
}

// buryLocked ends what the process had in flight, and returns the recipients that the caller tells.
func (w *worker) buryLocked() (recipients []sessionless.Recipient) {
	for c := range w.calls {
		if !c.sent {
			continue // whoever sends it finds out, and may try another process
		}
		w.server.doneLocked(c)
		if to := w.server.takeLocked(c); to != nil {
			recipients = append(recipients, to)
		}
		if c.park != nil {
			w.server.forgetParkLocked(c.park)
		}
	}
	return recipients
}
