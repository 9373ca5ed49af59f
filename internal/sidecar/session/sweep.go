package session

import (
	"context"
	"time"
)

// Idle says since when nobody has used the session; not at all while a stream is
// being read or a call is in flight.
func (s *Session) Idle() (since time.Time, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.touched, s.attached == 0 && len(s.calls) == 0
}

// Busy says whether a call is in flight, or its answer has not been read yet.
func (s *Session) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) > 0 {
		return true
	}
	for _, stream := range s.streams {
		if stream.attached && !stream.general {
			return true
		}
	}
	return false
}

// Began says when the session began.
func (s *Session) Began() time.Time { return s.began }

// Sweep answers calls whose time is up. The server is told, so that it can stop.
func (s *Session) Sweep(ctx context.Context, now time.Time) {
	var cancel [][]byte
	s.mu.Lock()
	for _, c := range s.calls {
		switch {
		case now.Before(c.deadline):
		case c.cancelled:
			s.answerLocked(c, CodeRequestCancelled, "the request was cancelled", FailedCancelled)
		default:
			s.metrics.CallTimeouts.Inc()
			s.answerLocked(c, CodeInternal, "the call took longer than "+s.limits.CallTimeout.String(), FailedTimeout)
			cancel = append(cancel, cancelledNotification(c.id))
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
		if s.server.Send(ctx, nil, message) != nil {
			return // it does not read; its calls were answered all the same
		}
	}
}

func cancelledNotification(id string) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), id...)
	return append(b, `,"reason":"timeout"}}`...)
}

// lookForLateLocked has somebody look for calls that are not answered soon. There is one
// timer for all calls of a session, which is not stopped when one is answered: most are
// answered long before a timer of their own would have been of use.
func (s *Session) lookForLateLocked() {
	switch {
	case s.looking || s.limits.CommitAfter <= 0:
		return
	case s.late == nil:
		s.late = time.AfterFunc(s.limits.CommitAfter, s.lookForLate)
	default:
		s.late.Reset(s.limits.CommitAfter)
	}
	s.looking = true
}

func (s *Session) lookForLate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.looking = false
	for _, c := range s.calls {
		switch {
		case c.stream.late:
		case now.Sub(c.began) >= s.limits.CommitAfter:
			c.stream.late = true
			c.stream.wake()
		default:
			s.looking = s.endedBy == nil
		}
	}
	if s.looking {
		s.late.Reset(s.limits.CommitAfter / 4)
	}
}
