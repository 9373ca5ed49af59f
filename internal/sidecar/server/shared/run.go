package shared

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// run is one process from its start to its end, with the sessions that it serves.
type run struct {
	mux.Conn[*call] // guarded by mu

	server  mux.Server
	options *Options
	metrics *Metrics
	ended   func(*run, error)
	hello   hello // set before there are sessions

	mu     sync.Mutex
	room   *sync.Cond // the process may have read enough, or it is over
	views  map[*view]struct{}
	topics map[string]*topic
	used   bool // there has been a session
}

func newRun(server mux.Server, options *Options, metrics *Metrics, ended func(*run, error)) *run {
	r := &run{
		server: server, options: options, metrics: metrics, ended: ended,
		views: map[*view]struct{}{}, topics: map[string]*topic{},
	}
	r.room = sync.NewCond(&r.mu)
	// One goroutine writes, with a deadline of its own: no session's deadline can leave half a
	// message behind, which would be the end of all.
	r.Init(server, &r.mu, mux.Options{WriteTimeout: options.StuckTimeout, Written: r.room.Broadcast, Fail: r.fail})
	r.Serve(r.receive, r.fail)
	return r
}

// open adds a session, unless it is over.
func (r *run) open() (*session.Session, bool) {
	v := newView(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.DeadLocked() != nil {
		return nil, false
	}
	r.used = true
	r.views[v] = struct{}{}
	go v.pump()
	return v.session, true
}

// fail ends the process and all of its sessions, once.
func (r *run) fail(reason error) {
	if errors.Is(reason, mux.ErrUnread) {
		reason = fmt.Errorf("the server did not read its input for %s", r.options.StuckTimeout)
	}
	r.mu.Lock()
	if r.used {
		reason = discreet(reason)
	}
	if !r.EndLocked(reason) {
		r.mu.Unlock()
		return
	}
	views := r.views
	r.views = nil
	clear(r.topics)
	r.room.Broadcast()
	r.mu.Unlock()
	r.server.Close()
	r.ended(r, reason)
	for v := range views {
		v.finish(reason)
	}
}

// discreet takes what a process wrote to standard error out of the reason for its end: it
// may be about one session's data, and every session is told the reason.
func discreet(reason error) error {
	if exit, ok := errors.AsType[*child.ExitError](reason); ok {
		return fault.Discreet("the server's process, which all sessions share, ended: "+exit.String(), exit)
	}
	return reason
}

// awaitOpenLocked waits until the process has read enough of what was sent to it for
// a session to send more. Large messages need no more room than small ones, so they
// are not starved.
func (r *run) awaitOpenLocked(ctx context.Context, v *view) error {
	if r.fullLocked() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.options.SendTimeout)
		defer cancel()
		stop := context.AfterFunc(ctx, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.room.Broadcast()
		})
		defer stop()
	}
	for r.fullLocked() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for the server to read: %w", err)
		}
		r.room.Wait()
	}
	if r.DeadLocked() != nil || v.closed {
		return session.ErrEnded
	}
	return nil
}

// fullLocked says whether too much waits for the process to read.
func (r *run) fullLocked() bool {
	return r.DeadLocked() == nil && r.QueuedLocked() > r.options.InputBytes
}
