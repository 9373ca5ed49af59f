package formodern

import (
	"errors"
	"fmt"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/child"
)

const (
	firstBackOff = time.Second
	lastBackOff  = 30 * time.Second
	// mostBackOffs is of how many principals failed starts are remembered.
	mostBackOffs = 1000
)

// backOff is why a principal's next process is not started yet. It is of one only: what
// keeps its processes from starting may be its own, and is nobody else's business.
type backOff struct {
	failures int // in a row
	retryAt  time.Time
	last     error
}

// err says why there is no start now, if so.
func (b *backOff) err() error {
	if b == nil {
		return nil
	}
	if wait := time.Until(b.retryAt); wait > 0 {
		return fmt.Errorf("the next start is in %s, because of the last: %w", wait.Round(time.Millisecond), b.last)
	}
	return nil
}

// startFailedLocked puts off a principal's next start. The first failure costs nothing,
// and neither does one that is not of the server, but of sessions that have all
// processes, or of a caller that it does not let in.
func (s *Server) startFailedLocked(principal string, reason error) {
	if s.closed || errors.Is(reason, child.ErrFull) {
		return
	}
	s.metrics.StartFailures.Inc()
	if errors.Is(reason, errRefused) {
		return
	}
	s.options.Log.Info("Cannot start a server process for clients without sessions", "reason", child.ForClients(reason).Error())
	b := s.backOffs[principal]
	if b == nil {
		s.forgetBackOffsLocked()
		b = &backOff{}
		s.backOffs[principal] = b
	}
	b.last, b.retryAt = child.ForClients(reason), time.Now()
	b.failures++
	if b.failures > 1 {
		b.retryAt = b.retryAt.Add(min(firstBackOff<<min(b.failures-2, 10), lastBackOff))
	}
}

// forgetBackOffsLocked makes room for another. What goes is of those who have not come
// back, or of anybody if all have.
func (s *Server) forgetBackOffsLocked() {
	if len(s.backOffs) < mostBackOffs {
		return
	}
	for principal, b := range s.backOffs {
		if time.Since(b.retryAt) > lastBackOff {
			delete(s.backOffs, principal)
		}
	}
	for principal := range s.backOffs {
		if len(s.backOffs) < mostBackOffs {
			return
		}
		delete(s.backOffs, principal)
	}
}
