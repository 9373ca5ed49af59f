package session

import (
	"context"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
)

// Idle returns when the client last used the session, and how far it has used it. It returns
// false while the client reads a stream or a call is in flight.
func (s *Session) Idle() (since time.Time, use places.Use, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.touched, s.use, s.idleLocked()
}

func (s *Session) idleLocked() bool { return s.attached == 0 && len(s.calls) == 0 }

// useLocked records how far the client uses the session. An answer has no method.
func (s *Session) useLocked(method []byte) {
	if s.use < places.Worked {
		s.use = max(s.use, places.UseOf(string(method)))
	}
}

// Busy reports whether a call is in flight, or the client has not read its answer yet.
func (s *Session) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) > 0 || s.attached > len(s.generals)
}

// Usage returns what the session does and holds now.
func (s *Session) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Usage{Requests: s.requests, InFlight: len(s.calls), Held: s.account.Held()}
}

// Sweep answers calls that have taken too long. It sends the server a cancellation for each.
func (s *Session) Sweep(ctx context.Context, now time.Time) {
	var cancel [][]byte
	s.mu.Lock()
	for _, c := range s.calls {
		limit := s.limits.CallTimeout
		if c.cancelled {
			limit = s.limits.CancelGrace
		}
		if now.Sub(c.since) >= limit {
			s.strayLocked(c)
		}
		switch {
		case now.Sub(c.since) < limit:
		case c.over:
			s.removeLocked(c)
		case c.cancelled:
			s.answerLocked(c, rpc.CodeRequestCancelled, "the request was cancelled", FailedCancelled)
		default:
			s.metrics.CallTimeouts.Inc()
			s.answerLocked(c, rpc.CodeInternal, "the call took longer than "+s.limits.CallTimeout.String(), FailedTimeout)
			cancel = append(cancel, rpc.AppendCancelled(nil, []byte(c.id), "timeout"))
		}
	}
	s.mu.Unlock()
	if len(cancel) == 0 {
		return
	}
	// A server that does not read must not block the sweep of other sessions.
	ctx, done := context.WithTimeout(ctx, sweepInterval/10)
	defer done()
	for _, message := range cancel {
		if s.server.Send(ctx, Message{Bytes: message}) != nil {
			return // the server does not read; the calls have their answers
		}
	}
}

// leastTick is the least time between two ticks of a session. Clients and servers hardly notice
// the delay, and it bounds the CPU time if many calls and requests are late.
const leastTick = 50 * time.Millisecond

// lookAtLocked schedules a tick. All calls, and all requests of the server, share one timer.
// An answer does not stop it: servers answer most calls long before a timer for each call
// would fire, so that such timers would be wasted work.
func (s *Session) lookAtLocked(when time.Time) {
	if s.endedBy != nil || !s.tickAt.IsZero() && !when.Before(s.tickAt) {
		return
	}
	s.tickAt = when
	if s.timer == nil {
		s.timer = time.AfterFunc(time.Until(when), s.tick)
	} else {
		s.timer.Reset(time.Until(when))
	}
}

// tick handles calls and requests of the server that are late, and schedules the next tick.
func (s *Session) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endedBy != nil {
		return
	}
	s.tickAt = time.Time{}
	now := time.Now()
	soonest := now.Add(leastTick)
	for _, next := range []time.Time{s.markLateLocked(now), s.expireLocked(now)} {
		if next.IsZero() {
			continue
		}
		if next.Before(soonest) {
			next = soonest
		}
		s.lookAtLocked(next)
	}
}

// markLateLocked marks the streams of calls without an answer for CommitAfter. It returns when
// to look for others, or zero if there are none.
func (s *Session) markLateLocked(now time.Time) (next time.Time) {
	if s.limits.CommitAfter <= 0 {
		return next
	}
	for _, c := range s.calls {
		switch {
		case c.stream.late || c.over:
		case now.Sub(c.since) >= s.limits.CommitAfter:
			c.stream.late = true
			c.stream.wake()
		default:
			next = now.Add(s.limits.CommitAfter / 4)
		}
	}
	return next
}
