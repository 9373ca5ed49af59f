package tomodern

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// call is a client's request at a process. Between two rounds it has no client that
// waits.
type call struct {
	group  *group
	worker *worker
	method string
	name   string // of what it is about
	leased bool   // it is the one that may ask

	// Guarded by the server's mutex.
	// What a client carries is bound to the arguments, which are kept of a leased call
	// until it is known what that makes.
	arguments []byte
	bound     []byte
	to        sessionless.Recipient // the client's request that waits; nil if none does
	level     level                 // of log messages that the client wants
	first     uint64                // of the request at the process that began it
	number    uint64                // of the one that is to be answered next
	tokenAt   uint64                // what the process knows as the token
	sent      bool                  // the process has it
	heard     uint64                // how many messages the process had sent before
	cancelled bool
	done      bool // the process works on it no more
	task      *task
	questions []*question // of the process's, without an answer
	lastKey   int
	gathering *time.Timer
	kill      *time.Timer
	park      *park
	held      *session.Message // the answer, which came while nobody waited
}

// tries is how many processes may end in a row without having seen a request.
const tries = 3

// call passes a request on to a process.
func (s *Server) call(ctx context.Context, g *group, r *request) error {
	for try := 1; ; try++ {
		c := &call{
			group: g, method: r.method, name: string(r.name()), level: r.level,
			leased: g.capabilities.ask() && mayAsk(r.method),
			to:     r.to,
		}
		if c.leased {
			c.arguments = bytes.Clone(r.arguments.Of(r.Bytes))
		}
		w, err := g.acquire(ctx, c)
		if err != nil {
			return err
		}
		c.worker = w
		err = w.begin(ctx, c, r)
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case !errors.Is(err, errGone) || try == tries:
			return s.busy(err)
		}
	}
}

// begin sends a call to the process, which it has been acquired for.
func (w *worker) begin(ctx context.Context, c *call, r *request) error {
	s := w.server
	w.tellLevel(ctx, c)
	asTask := w.needsTask(ctx, c)
	s.mu.Lock()
	if w.DeadLocked() != nil || ctx.Err() != nil {
		delete(w.logged, c)
		w.releaseLocked(c)
		s.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("prepare a call: %w", err)
		}
		return errGone
	}
	w.registerLocked(c, asTask)
	s.mu.Unlock()
	text := r.translated(c.number)
	if asTask {
		text = withTask(text)
	}
	// Nobody's going away may leave half a message behind.
	err := w.child.Send(context.WithoutCancel(ctx), session.Message{Bytes: text, From: r.From})
	return w.begun(c, err)
}

func (w *worker) registerLocked(c *call, asTask bool) {
	c.first, c.heard = w.NumberLocked(), w.HeardLocked()
	c.number = c.first
	w.working.Begin(c.first)
	w.AddLocked(c.number, c)
	w.calls[c] = struct{}{}
	if len(c.to.Token()) > 0 {
		c.tokenAt = c.number
		w.progress[c.number] = c
	}
	if asTask {
		c.task = &task{}
	}
	w.server.calls[c.to] = c
}

// begun notes whether the process has a call.
func (w *worker) begun(c *call, err error) error {
	s := w.server
	s.mu.Lock()
	if c.done {
		s.mu.Unlock()
		return nil // it has been answered
	}
	c.sent = true
	dead := w.DeadLocked()
	if err == nil && dead == nil {
		w.ReadLocked()
		s.mu.Unlock()
		return nil
	}
	if err != nil {
		w.working.End(c.first) // the process has not seen it
	}
	s.doneLocked(c)
	to := s.takeLocked(c)
	busy, unread := errors.Is(err, fault.ErrBusy), mux.IsUnread(err)
	switch {
	case unread:
		w.unreadLocked()
	case err != nil && !busy:
		w.unlistLocked() // nobody else is to try
	}
	s.mu.Unlock()
	switch {
	case err == nil:
		if to != nil {
			refuse(to, rpc.CodeInternal, dead.Error()) // it may have acted
		}
		return nil
	case busy:
		return fmt.Errorf("%w: %w", fault.ErrBusy, err)
	case unread:
		return mux.ErrUnread
	}
	go w.AwaitReason(err)
	return errGone
}

// takeLocked returns the recipient that waits for a call, or nil. The caller answers it.
func (s *Server) takeLocked(c *call) sessionless.Recipient {
	to := c.to
	if to != nil {
		delete(s.calls, to)
	}
	c.to = nil
	return to
}

// doneLocked says that the process works on a call no more.
func (s *Server) doneLocked(c *call) {
	if c.done {
		return
	}
	c.done = true
	w := c.worker
	delete(w.calls, c)
	w.DropLocked(c.number)
	delete(w.progress, c.tokenAt)
	delete(w.logged, c)
	c.questions = nil
	for _, timer := range []*time.Timer{c.gathering, c.kill} {
		if timer != nil {
			timer.Stop()
		}
	}
	if c.task != nil && c.task.poll != nil {
		c.task.poll.Stop()
	}
	w.releaseLocked(c)
}

// Abandon is for a client that has gone away from its request. One that has been asked
// for input has its answer, so that going away means nothing.
func (s *Server) Abandon(to sessionless.Recipient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.listens[to]; l != nil {
		s.leaveLocked(l)
		return
	}
	if c := s.calls[to]; c != nil {
		s.takeLocked(c)
		s.cancelLocked(c)
	}
}

// cancelLocked ends a call that nobody wants any more. A process that may ask is free
// when it is done with it, and is ended if that takes too long: what it asks until then
// would be taken for somebody else's. Any other is free at once.
func (s *Server) cancelLocked(c *call) {
	if c.done {
		return
	}
	w := c.worker
	c.cancelled = true
	for _, q := range c.questions {
		w.sendLocked(q.givenUp())
	}
	c.questions = nil
	if c.park != nil {
		s.forgetParkLocked(c.park)
	}
	if c.task != nil && c.task.id != "" {
		w.cancelTaskLocked(c) // U-04
	} else {
		w.sendLocked(mux.Cancellation(c.number, "the client has gone"))
	}
	w.watchLocked(c)
	if !c.leased && c.task == nil {
		s.doneLocked(c)
		return
	}
	delete(w.logged, c)
	c.kill = time.AfterFunc(s.options.Limits.CancelGrace, func() { s.endCancelled(c) })
}

// endCancelled is for a process that is not done with a cancelled call.
func (s *Server) endCancelled(c *call) {
	s.mu.Lock()
	stuck := !c.done && c.leased
	if !c.leased {
		s.doneLocked(c) // nothing of it is taken for anybody else's
	}
	s.mu.Unlock()
	if stuck {
		s.metrics.Kills.Inc()
		c.worker.fail(errStuck)
	}
}
