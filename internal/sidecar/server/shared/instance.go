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

// instance is one child process from its start to its end, with the sessions that it serves.
type instance struct {
	mux.Conn[*call] // guarded by mu

	server      mux.Server
	options     *Options
	metrics     *Metrics
	ended       func(*instance, error)
	initialized initialized // set before the first session opens

	mu     sync.Mutex
	room   *sync.Cond // signals that the process has read a message, or has ended
	views  map[*sessionView]struct{}
	topics map[string]*topic
	used   bool // a session has been open
}

func newInstance(server mux.Server, options *Options, metrics *Metrics, ended func(*instance, error)) *instance {
	i := &instance{
		server: server, options: options, metrics: metrics, ended: ended,
		views: map[*sessionView]struct{}{}, topics: map[string]*topic{},
	}
	i.room = sync.NewCond(&i.mu)
	// One goroutine writes, with its own deadline. A session's deadline could cut a message short,
	// which would break the process for all sessions.
	i.Init(server, &i.mu, mux.Options{WriteTimeout: options.StuckTimeout, Written: i.room.Broadcast, Fail: i.fail})
	i.Serve(i.receive, i.fail)
	return i
}

// open adds a session. It returns false if the child process has ended.
func (i *instance) open() (*session.Session, bool) {
	v := newSessionView(i)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.DeadLocked() != nil {
		return nil, false
	}
	i.used = true
	i.views[v] = struct{}{}
	go v.deliver()
	return v.session, true
}

// fail ends the child process and all of its sessions. Only the first call has an effect.
func (i *instance) fail(reason error) {
	if errors.Is(reason, mux.ErrUnread) {
		reason = fmt.Errorf("the server did not read its input for %s", i.options.StuckTimeout)
	}
	i.mu.Lock()
	if i.used {
		reason = discreet(reason)
	}
	if !i.EndLocked(reason) {
		i.mu.Unlock()
		return
	}
	views := i.views
	i.views = nil
	clear(i.topics)
	i.room.Broadcast()
	i.mu.Unlock()
	i.server.Close()
	i.ended(i, reason)
	for v := range views {
		v.finish(reason)
	}
}

// discreet removes what a process wrote to standard error from the reason for its end. Every
// session gets the reason, and what the process wrote may be about the data of one session.
func discreet(reason error) error {
	if exit, ok := errors.AsType[*child.ExitError](reason); ok {
		return fault.Discreet("the server's process, which all sessions share, ended: "+exit.String(), exit)
	}
	return reason
}

// awaitRoomLocked waits until a session may send more to the child process. It does not look at
// the size of the message, so that small messages do not starve large ones.
func (i *instance) awaitRoomLocked(ctx context.Context, v *sessionView) error {
	if i.fullLocked() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, i.options.SendTimeout)
		defer cancel()
		stop := context.AfterFunc(ctx, func() {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.room.Broadcast()
		})
		defer stop()
	}
	for i.fullLocked() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for the server to read: %w", err)
		}
		i.room.Wait()
	}
	if i.DeadLocked() != nil || v.isDone() {
		return session.ErrEnded
	}
	return nil
}

// fullLocked reports whether the child process has too much left to read.
func (i *instance) fullLocked() bool {
	return i.DeadLocked() == nil && i.QueuedLocked() > i.options.InputBytes
}
