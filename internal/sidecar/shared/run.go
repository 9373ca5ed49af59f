package shared

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// run is one process from its start to its end, with the sessions that it serves.
type run struct {
	server  Server
	options *Options
	metrics *Metrics
	ended   func(*run, error)
	began   time.Time
	number  atomic.Uint64 // of the last request sent
	hello   hello         // set before there are sessions
	over    chan struct{} // closed at the end

	mu     sync.Mutex
	room   *sync.Cond // there may be room in the queue, or it is over
	work   *sync.Cond // there is something in the queue, or it is over
	queue  [][]byte   // to be written to the process
	queued int        // bytes of these, and of the one being written
	views  map[*view]struct{}
	calls  map[uint64]*call
	topics map[string]*topic
	used   bool // there has been a session
	dead   error
}

func newRun(server Server, options *Options, metrics *Metrics, ended func(*run, error)) *run {
	r := &run{
		server: server, options: options, metrics: metrics, ended: ended, began: time.Now(),
		over:  make(chan struct{}),
		views: map[*view]struct{}{}, calls: map[uint64]*call{}, topics: map[string]*topic{},
	}
	r.room, r.work = sync.NewCond(&r.mu), sync.NewCond(&r.mu)
	server.Serve(r.receive, r.fail)
	go r.write()
	return r
}

// open adds a session, unless it is over.
func (r *run) open() (*session.Session, bool) {
	v := newView(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead != nil {
		return nil, false
	}
	r.used = true
	r.views[v] = struct{}{}
	go v.pump()
	return v.session, true
}

func (r *run) deadBy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dead
}

// fail ends the process and all of its sessions, once.
func (r *run) fail(reason error) {
	r.mu.Lock()
	if r.dead != nil {
		r.mu.Unlock()
		return
	}
	if r.used {
		reason = discreet(reason)
	}
	r.dead = reason
	views := r.views
	r.views = nil
	clear(r.calls)
	clear(r.topics)
	r.queue = nil
	r.room.Broadcast()
	r.work.Broadcast()
	close(r.over)
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
		return exit.InWords("the server's process, which all sessions share, ended: " + exit.String())
	}
	return reason
}

// awaitOpenLocked waits until the process has read enough of what was sent to it for
// a session to send more. Large messages need no more room than small ones, so they
// are not starved.
func (r *run) awaitOpenLocked(ctx context.Context, v *view) error {
	if r.dead == nil && r.queued > r.options.InputBytes {
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
	for r.dead == nil && r.queued > r.options.InputBytes {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for the server to read: %w", err)
		}
		r.room.Wait()
	}
	if r.dead != nil || v.closed {
		return session.ErrEnded
	}
	return nil
}

// queueLocked has a message written after those that were queued before. The
// message must not change any more.
func (r *run) queueLocked(message []byte) {
	if r.dead != nil {
		return
	}
	r.queue = append(r.queue, message)
	r.queued += len(message)
	r.work.Signal()
}

// write writes what is queued. There is one writer, with a deadline of its own: no
// session's deadline can leave half a message behind, which would be the end of all.
func (r *run) write() {
	for {
		message, ok := r.nextQueued()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), r.options.StuckTimeout)
		err := r.server.Send(ctx, nil, message)
		cancel()
		if err != nil {
			r.writeFailed(err)
			return
		}
		r.mu.Lock()
		r.queued -= len(message)
		r.room.Broadcast()
		r.mu.Unlock()
	}
}

func (r *run) nextQueued() ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queue) == 0 {
		if r.dead != nil {
			return nil, false
		}
		r.work.Wait()
	}
	message := r.queue[0]
	r.queue[0] = nil
	r.queue = r.queue[1:]
	return message, true
}

// reasonGrace is how long a failed write waits for the reader of the process's output to
// say why the process ended, which tells more than that its input is closed. The reader
// itself waits a second for the exit code.
const reasonGrace = 3 * time.Second

func (r *run) writeFailed(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		r.fail(fmt.Errorf("the server did not read its input for %s", r.options.StuckTimeout))
		return
	}
	select {
	case <-r.over:
	case <-time.After(reasonGrace):
		r.fail(err)
	}
}
