package sessionless

import (
	"context"
	"errors"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
)

var errYielded = errors.New("the process was idle, and ended for another principal")

// acquire starts a server process, if there is a place for it. With patience it waits for a place.
func (s *Server) acquire(ctx context.Context, patient bool) (mux.Server, *places.Place, error) {
	if s.places == nil {
		server, err := s.options.Acquire(ctx)
		return server, nil, err
	}
	take := s.places.TakeSpare
	if patient {
		take = func(share string) (*places.Place, error) { return s.places.Take(ctx, share) }
	}
	place, err := take(s.share)
	if err != nil {
		return nil, nil, err
	}
	server, err := s.options.Acquire(ctx)
	if err != nil {
		place.Leave()
		return nil, nil, err
	}
	return server, place, nil
}

// Idle implements places.Occupant. A process that has begun a task works on it, and does not say until
// when. It does not end for another principal. It ends once no client has asked about the task for as long as
// clients may be idle.
func (p *process) Idle() (since time.Time, use places.Use, idle bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.DeadLocked() != nil || p.neededLocked() || p.tasked:
		return time.Time{}, 0, false
	case p.continued:
		return p.unused, places.Worked, true
	}
	return p.unused, places.Listed, true // clients lose nothing but the time of a start
}

// Yield implements places.Occupant.
func (p *process) Yield(since time.Time) bool {
	return p.failIf(errYielded, func() bool { return !p.neededLocked() && !p.unused.After(since) })
}
