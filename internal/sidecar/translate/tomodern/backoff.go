package tomodern

import (
	"errors"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
)

// mostBackOffs is of how many principals failed starts are remembered. Each has a back-off
// of its own: what keeps its processes from starting may be its own, and is not told to
// others.
const mostBackOffs = 1000

// startFailedLocked puts off a principal's next start. The first failure costs nothing,
// and neither does one that is not of the server, but of sessions that have all
// processes, or of a caller that it does not let in.
func (s *Server) startFailedLocked(principal string, reason error) {
	if s.closed || errors.Is(reason, fault.ErrFull) {
		return
	}
	s.metrics.StartFailures.Inc()
	if errors.Is(reason, errRefused) {
		return
	}
	s.options.Log.Info("Cannot start a server process for clients without sessions", "reason", fault.ForClients(reason).Error())
	backOff, known := s.backOffs[principal]
	if !known {
		s.forgetBackOffsLocked()
	}
	backOff.Failed(fault.ForClients(reason), mux.OnDemand)
	s.backOffs[principal] = backOff
}

// forgetBackOffsLocked makes room for another principal's. Those of principals that have not
// come back go, or any if all have.
func (s *Server) forgetBackOffsLocked() {
	if len(s.backOffs) < mostBackOffs {
		return
	}
	for principal, backOff := range s.backOffs {
		if backOff.Wait() < -mux.OnDemand.Last {
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
