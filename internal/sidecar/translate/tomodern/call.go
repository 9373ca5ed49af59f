package tomodern

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// call is a client's request at a process. While it is parked no client waits for it.
type call struct {
	group   *group
	process *process
	method  string
	name    string   // of the tool or prompt, or the URI of the resource
	mayAsk  bool     // the process may ask its client for input
	digits  [20]byte // room for the number

	// The requestState is bound to the arguments. A call that may ask keeps them until the
	// binding is known.
	binding   sync.Once
	arguments []byte
	bound     []byte

	// Guarded by the server's mutex.
	to        sessionless.Recipient // the client's request that waits; nil if none does
	level     level                 // of log messages that the client wants
	first     uint64                // number of the request that began it, and progress token at the process
	number    uint64                // of the request that has no answer yet
	sent      bool                  // the process has it
	heard     uint64                // messages that the process had sent before
	cancelled bool
	done      bool // the process does not work on it any more
	task      *task
	inputs    []*inputRequest // of the process, without an answer
	lastInput int
	gathering *time.Timer
	kill      *time.Timer
	parked    *parked
	kept      *session.Message // the answer, which came while the call was parked
}

// call passes a request on to a process.
func (s *Server) call(ctx context.Context, g *group, r *request) error {
	return s.retryGone(func() error {
		c := &call{
			group: g, method: r.method, name: string(r.name()), level: r.level, to: r.to,
			mayAsk: g.capabilities.any() && rpc.TakesInput(r.method),
		}
		if c.mayAsk {
			c.arguments = bytes.Clone(r.arguments.Of(r.Bytes))
		}
		p, err := g.acquire(ctx, c)
		if err != nil {
			return err
		}
		c.process = p
		return p.begin(ctx, c, r)
	})
}

// begin sends a call to the process that was acquired for it.
func (p *process) begin(ctx context.Context, c *call, r *request) error {
	s := p.server
	p.setLevel(ctx, c)
	asTask := p.needsTask(ctx, c)
	s.mu.Lock()
	if p.DeadLocked() != nil || ctx.Err() != nil {
		delete(p.logging, c)
		p.releaseLocked(c)
		s.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("prepare a call: %w", err)
		}
		return errGone
	}
	p.registerLocked(c, asTask)
	s.mu.Unlock()
	// A client that goes away must not leave half a message behind.
	err := p.child.Send(context.Background(), session.Message{Bytes: r.translated(c), From: r.From}) //nolint:contextcheck // see above
	return p.noteSent(c, err)
}

func (p *process) registerLocked(c *call, asTask bool) {
	c.first, c.heard = p.NumberLocked(), p.HeardLocked()
	c.number = c.first
	p.working.Begin(c.first)
	p.AddLocked(c.number, c)
	p.calls[c.first] = c
	if asTask {
		c.task = &task{}
	}
	p.server.calls[c.to] = c
}

// noteSent notes whether the process has a call.
func (p *process) noteSent(c *call, err error) error {
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.done {
		return nil // it has been answered
	}
	c.sent = true
	dead := p.DeadLocked()
	switch {
	case err == nil && dead == nil:
		p.ReadLocked()
		return nil
	case err == nil:
		s.failLocked(c, dead) // the process may have acted
		return nil
	}
	p.working.End(c.first) // the process has not seen it
	s.doneLocked(c)
	waits := s.takeLocked(c) != nil
	if c.parked != nil {
		s.forgetLocked(c.parked)
	}
	outcome := errGone
	switch {
	case errors.Is(err, fault.ErrBusy):
		outcome = s.busy(err)
	case mux.IsUnread(err):
		p.unreadLocked()
		outcome = s.busy(mux.ErrUnread)
	default:
		p.unlistLocked() // no other call must try
		go p.AwaitReason(err)
	}
	if !waits {
		return nil // the client has its answer: the process asked for input before it had all of the call
	}
	return outcome
}

// failLocked ends a call whose process has ended.
func (s *Server) failLocked(c *call, reason error) {
	s.doneLocked(c)
	if to := s.takeLocked(c); to != nil {
		refuse(to, rpc.CodeInternal, reason.Error())
	}
	if c.parked != nil {
		s.forgetLocked(c.parked)
	}
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

// doneLocked notes that the process does not work on a call any more.
func (s *Server) doneLocked(c *call) {
	if c.done {
		return
	}
	c.done = true
	p := c.process
	delete(p.calls, c.first)
	p.DropLocked(c.number)
	delete(p.logging, c)
	c.inputs = nil
	stop(c.gathering, c.kill)
	if c.task != nil {
		stop(c.task.poll)
	}
	p.releaseLocked(c)
}

// stop stops those of the timers that there are.
func stop(timers ...*time.Timer) {
	for _, timer := range timers {
		if timer != nil {
			timer.Stop()
		}
	}
}

// Abandon notes that a client has gone away from its request. A client that was asked for
// input has its answer, so that its going away means nothing.
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

// cancelLocked ends a call that no client wants any more. A process that may ask is free when
// it is done with the call, and is ended if that takes too long: the adapter would ask another
// call's client for the input that the process still asks for. Any other process is free at
// once.
func (s *Server) cancelLocked(c *call) {
	if c.done {
		return
	}
	p := c.process
	c.cancelled = true
	for _, q := range c.inputs {
		p.PostLocked(q.unanswered())
	}
	c.inputs = nil
	if c.parked != nil {
		s.forgetLocked(c.parked)
	}
	if c.task != nil && c.task.id != "" {
		p.cancelTaskLocked(c) // U-04
	} else {
		p.CancelLocked(c.number, "the client has gone")
	}
	p.watchLocked(c)
	if !c.mayAsk && c.task == nil {
		s.doneLocked(c)
		return
	}
	delete(p.logging, c)
	c.kill = s.after(s.options.Limits.CancelGrace, func() { s.endCancelledLocked(c) })
}

// endCancelledLocked ends a process that is not done with a cancelled call in time.
func (s *Server) endCancelledLocked(c *call) {
	switch {
	case c.done:
	case c.mayAsk:
		s.metrics.Kills.Inc()
		go c.process.fail(errStuck)
	default:
		s.doneLocked(c) // its process asks for no input, so that no other client can get its messages
	}
}
