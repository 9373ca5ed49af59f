package session

import (
	"context"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
)

// Idle returns when the client last used the session, and what it has done with it so far.
// It returns false while a client reads a stream or a call is in flight.
func (s *Session) Idle() (since time.Time, use places.Use, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.touched, s.use, s.idleLocked()
}

func (s *Session) idleLocked() bool { return s.attached == 0 && len(s.calls) == 0 }

// useLocked notes what the client does. Answers have no method, and are work.
func (s *Session) useLocked(method []byte) {
	if s.use < places.Worked {
		s.use = max(s.use, places.UseOf(string(method)))
	}
}

// Busy says whether a call is in flight, or its answer has not been read yet.
func (s *Session) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) > 0 || s.attached > len(s.generals)
}

// Sweep answers calls whose time is up. The server is told, so that it can stop.
func (s *Session) Sweep(ctx context.Context, now time.Time) {
	var cancel [][]byte
	s.mu.Lock()
	for _, c := range s.calls {
		limit := s.limits.CallTimeout
		if c.cancelled {
			limit = s.limits.CancelGrace
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
	// A server that does not read must not hold up the other sessions.
	ctx, done := context.WithTimeout(ctx, sweepInterval/10)
	defer done()
	for _, message := range cancel {
		if s.server.Send(ctx, Message{Bytes: message}) != nil {
			return // it does not read; its calls were answered all the same
		}
	}
}

// leastTick is the time between two looks at what is late. It is short to those who wait,
// and long to the processor, however many things are late one after the other.
const leastTick = 50 * time.Millisecond

// lookAtLocked has the session look at some time for what is late: calls that are not
// answered soon, and requests of the server. There is one timer for all of a session,
// which is not stopped when one is answered: most are answered long before a timer of
// their own would have been of use.
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

// tick looks for what is late, and says when to look again.
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

// markLateLocked notes which streams have a call that has had no answer for some time. It
// returns when to look again, if there are others.
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
