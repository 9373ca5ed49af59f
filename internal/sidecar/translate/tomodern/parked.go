package tomodern

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// parked is a call that waits for its client to come back with input.
type parked struct {
	id    string
	call  *call  // nil if the process is to be called anew
	round uint32 // of input requests, the last
	open  bool   // the client has not come back from that round
	timer *time.Timer
}

// mostParked bounds what the Server keeps for clients that never come back. Calls that processes
// work on are fewer, since each has a process.
const mostParked = 10_000

// ask gives a call's client the process's input requests in place of an answer.
func (s *Server) ask(c *call) {
	bound := c.boundTo()
	s.mu.Lock()
	c.gathering = nil
	if c.done || c.cancelled || c.to == nil || len(c.inputs) == 0 {
		s.mu.Unlock()
		return
	}
	if c.parked == nil {
		c.parked = s.parkLocked(c)
	}
	state := s.openLocked(c.parked, bound)
	result := inputRequired(c.inputs, state)
	to := s.takeLocked(c)
	s.mu.Unlock()
	to.Answer(rpc.AppendResult(nil, to.ID(), result), 0, "")
}

func (s *Server) parkLocked(c *call) *parked {
	k := &parked{id: rand.Text(), call: c}
	s.parked[k.id] = k
	return k
}

// openLocked begins a round, and returns the requestState that the client must come back with.
func (s *Server) openLocked(k *parked, bound []byte) string {
	s.metrics.Parks.Inc()
	k.round++
	k.open = true
	round := k.round
	k.timer = time.AfterFunc(s.options.Limits.ParkTTL, func() { s.expire(k, round) })
	return s.sealer.seal(k.id, round, bound)
}

func (s *Server) forgetLocked(k *parked) {
	delete(s.parked, k.id)
	k.open = false
	if c := k.call; c != nil && c.kept != nil {
		s.kept.Change(-len(c.kept.Bytes))
		c.kept = nil
	}
	stop(k.timer)
	s.wakeLocked()
}

// keepLocked keeps the answer to a parked call. The process has not waited for the input.
func (s *Server) keepLocked(c *call, m session.Message) {
	if !s.kept.Take(len(m.Bytes)) {
		s.forgetLocked(c.parked)
		return
	}
	kept := mux.Keep(m)
	c.kept = &kept
}

// giveWay forgets the parked call with the largest answer.
func (s *Server) giveWay() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var largest *parked
	size := 0
	for _, k := range s.parked {
		if c := k.call; c != nil && c.kept != nil && len(c.kept.Bytes) > size {
			largest, size = k, len(c.kept.Bytes)
		}
	}
	if largest != nil {
		s.forgetLocked(largest)
	}
}

// expire ends a call whose client does not come back (I-07).
func (s *Server) expire(k *parked, round uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parked[k.id] != k || !k.open || k.round != round {
		return
	}
	s.forgetLocked(k)
	s.metrics.ExpiredParks.Inc()
	if k.call != nil {
		s.cancelLocked(k.call)
	}
}

// AwaitParked waits until no call is parked, or the context ends: no other instance can resume
// one.
func (s *Server) AwaitParked(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.parked) > 0 && !s.closed && s.waitLocked(ctx, nil) == nil {
	}
}

// inputRequired is the result that asks a client for input.
func inputRequired(inputs []*inputRequest, state string) []byte {
	requests := make([]string, len(inputs))
	for i, q := range inputs {
		requests[i] = `"` + q.key + `":{"method":"` + q.method + `","params":` + string(q.params) + `}`
	}
	return []byte(`{"resultType":"input_required","inputRequests":` + rpc.Object(requests...) + `,"requestState":"` + state + `"}`)
}
