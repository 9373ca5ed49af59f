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
	call  *call  // nil if the adapter calls the process again
	bound []byte // to the client and the request, see boundTo
	state string // of the last round of input requests
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
	defer s.mu.Unlock()
	c.gathering = nil
	if c.done || c.cancelled || c.to == nil || len(c.inputs) == 0 {
		return
	}
	if c.parked == nil {
		c.parked = &parked{call: c, bound: bound}
	}
	s.openLocked(c.parked)
	succeed(s.takeLocked(c), inputRequired(c.inputs, c.parked.state))
}

// openLocked begins a round. Its requestState, which the client must come back with, says nothing,
// and no client can guess it (I-04).
func (s *Server) openLocked(k *parked) {
	s.metrics.Parks.Inc()
	delete(s.parked, k.state)
	state := rand.Text()
	k.state, k.open = state, true
	s.parked[state] = k
	k.timer = s.after(s.options.Limits.ParkTTL, func() { s.expireLocked(k, state) })
}

func (s *Server) forgetLocked(k *parked) {
	delete(s.parked, k.state)
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

// expireLocked ends a call whose client does not come back (I-07).
func (s *Server) expireLocked(k *parked, state string) {
	if s.parked[state] != k || !k.open {
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
