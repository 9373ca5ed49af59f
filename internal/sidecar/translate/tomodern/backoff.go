package tomodern

import (
	"errors"
	"maps"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
)

// mostBackOffs is how many back-offs the Server keeps: one for each group of callers that share
// processes. What keeps the processes of one group from starting may be its own, and others must
// not read it.
const mostBackOffs = 1000

// startFailedLocked puts off the next start for some callers. The first failure costs nothing.
// Neither does one for which the server is not to blame: sessions have all processes, or the
// server does not let the caller in.
func (s *Server) startFailedLocked(callers string, reason error) {
	if s.closed || errors.Is(reason, fault.ErrFull) {
		return
	}
	s.metrics.StartFailures.Inc()
	if errors.Is(reason, errRefused) {
		return
	}
	reason = fault.ForClients(reason)
	s.options.Log.Info("Cannot start a server process for clients without sessions", "reason", reason.Error())
	backOff, known := s.backOffs[callers]
	if !known {
		s.forgetBackOffsLocked()
	}
	backOff.Failed(reason, mux.OnDemand)
	s.backOffs[callers] = backOff
}

// forgetBackOffsLocked makes room for another back-off. Those that have long ended go, or any if
// none has.
func (s *Server) forgetBackOffsLocked() {
	if len(s.backOffs) < mostBackOffs {
		return
	}
	maps.DeleteFunc(s.backOffs, func(_ string, b mux.BackOff) bool { return b.Wait() < -mux.OnDemand.Last })
	for callers := range s.backOffs {
		if len(s.backOffs) < mostBackOffs {
			return
		}
		delete(s.backOffs, callers)
	}
}
