package tomodern

import "context"

// AwaitParked waits until no call is parked, or the context ends: only this instance can
// go on with one.
func (s *Server) AwaitParked(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters++
	defer func() { s.waiters-- }()
	for len(s.parks) > 0 && !s.closed && ctx.Err() == nil {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
}
