package sessionless

import (
	"context"
	"errors"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
)

// first returns the process that serves all clients, and starts it if there is none.
func (s *Server) first(ctx context.Context) (*process, error) {
	if s.Found() == Legacy && s.options.Translate == nil {
		return nil, ErrSessionsOnly
	}
	return s.primary.Get(ctx)
}

// start starts a process that serves clients. If the era of the server is not known, it
// takes one to find out.
func (s *Server) start(ctx context.Context) (*process, error) {
	era := s.Found()
	if era == Auto {
		found, usable, err := s.detect(ctx)
		s.learn(found)
		if err != nil {
			return nil, err
		}
		switch era = s.Found(); {
		case usable != nil && era == Modern:
			s.hub.join(usable)
			return usable, nil
		case usable != nil:
			usable.fail(errProbed)
		}
	}
	switch {
	case era == Modern:
		launched, err := s.launch(ctx)
		if err == nil {
			s.hub.join(launched)
		}
		return launched, err
	case s.options.Translate == nil:
		return nil, ErrSessionsOnly
	default:
		return newTranslated(s.options.Translate(), &s.shared, s.primary.Ended), nil
	}
}

// launch starts a process that has not been sent anything.
func (s *Server) launch(ctx context.Context) (*process, error) {
	server, place, err := s.acquire(ctx, true)
	if err != nil {
		return nil, err
	}
	return newProcess(server, place, &s.shared, s.primary.Ended), nil
}

// isHarmless is for ends that are no failure of the process: the adapter did not need it.
func isHarmless(reason error) bool {
	_, full := errors.AsType[*places.FullError](reason)
	return full || errors.Is(reason, fault.ErrFull) || errors.Is(reason, ErrSessionsOnly) || errors.Is(reason, errIdle) || errors.Is(reason, errYielded)
}

func (s *Server) logEnd(reason error) {
	s.options.Log.Info("The server process for clients of the stateless revision ended", "reason", reason.Error())
}
