package tomodern

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

var errResponses = errors.New("inputResponses do not answer the input requests")

// retry resumes a parked call with the input of its client. A retry that is wrong in any way
// calls nothing: the tool may have acted.
func (s *Server) retry(ctx context.Context, g *group, r *request) error {
	bound := boundTo(g, r.method, r.name(), r.arguments.Of(r.Bytes))
	s.mu.Lock()
	k := s.parked[string(rpc.Text(r.Bytes, r.state))]
	if k == nil || !k.open || !bytes.Equal(k.bound, bound) {
		s.mu.Unlock()
		s.metrics.InvalidStates.Inc()
		refuse(r.to, rpc.CodeInvalidParams, "requestState invalid or expired; call again")
		return nil
	}
	if k.call == nil {
		s.forgetLocked(k)
		s.mu.Unlock()
		s.metrics.Retries.Inc()
		return s.callAgain(ctx, g, r, k)
	}
	answers, err := k.call.answersLocked(r)
	if err != nil {
		s.mu.Unlock() // the client may send better ones
		refuse(r.to, rpc.CodeInvalidParams, err.Error())
		return nil
	}
	s.metrics.Retries.Inc()
	s.resume(ctx, r, k, answers)
	return nil
}

// callAgain is the retry that a server with sessions expects after -32042. The client may repeat
// one that finds no process.
func (s *Server) callAgain(ctx context.Context, g *group, r *request, k *parked) error {
	err := s.call(ctx, g, r)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			s.parked[k.state], k.open = k, true
			k.timer.Reset(s.options.Limits.ParkTTL)
		}
	}
	return err
}

// answersLocked are the answers of a retry to a call's input requests, which are dropped. Keys
// of no input request are ignored, and input requests without an answer stay (I-06).
func (c *call) answersLocked(r *request) (answers [][]byte, err error) {
	if r.responses.Present() && !r.responses.IsObject(r.Bytes) {
		return nil, errResponses
	}
	var left []*inputRequest
	for some := range slices.Chunk(c.inputs, rpc.MostNames) {
		keys := make([]string, len(some))
		for i, q := range some {
			keys[i] = q.key
		}
		found, err := rpc.Find(r.Bytes, r.responses, keys...)
		if err != nil {
			return nil, err
		}
		for i, q := range some {
			switch at := found[i]; {
			case !at.Present():
				left = append(left, q)
			case !q.isAnswer(r.Bytes, at):
				return nil, errResponses
			default:
				answers = append(answers, rpc.AppendResult(nil, q.id, at.Of(r.Bytes)))
			}
		}
	}
	c.inputs = left
	return answers, nil
}

// resume gives a parked call to the client that came back, and the answers to the process. It
// is called with the server's mutex, which it gives back.
func (s *Server) resume(ctx context.Context, r *request, k *parked, answers [][]byte) {
	c := k.call
	p := c.process
	k.open = false // before anything is done
	k.timer.Stop()
	if c.kept != nil {
		kept := *c.kept
		s.forgetLocked(k)
		s.mu.Unlock()
		s.answer(c, r.to, kept)
		return
	}
	c.to, c.level = r.to, r.level
	s.calls[c.to] = c
	delete(p.logging, c)
	s.gatherLocked(c)
	s.mu.Unlock()
	p.setLevel(ctx, c)
	for i, answer := range answers {
		err := p.child.Send(context.WithoutCancel(ctx), session.Message{Bytes: answer, From: r.From})
		switch {
		case err == nil:
		case errors.Is(err, fault.ErrBusy), mux.IsUnread(err): // the process has StuckTimeout to read it
			s.mu.Lock()
			for _, left := range answers[i:] {
				p.PostLocked(left)
			}
			s.mu.Unlock()
			return
		default:
			go p.AwaitReason(err) // which answers the client
			return
		}
	}
}
