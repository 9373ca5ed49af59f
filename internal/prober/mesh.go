package prober

import (
	"errors"

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// errMeshed means that a proxy closes the manager's connections, and the server may well work.
var errMeshed = errors.New("a proxy of a mesh closes the manager's connections")

// meshed returns the error of a verification, or one that wraps errMeshed if it says nothing of the
// server.
//
// A sidecar proxy of a mesh with strict mTLS accepts the manager's plain connections and closes them
// before the first byte of an answer. So may an adapter that is broken. What tells them apart: the
// manager verifies ready pods only, so the kubelet, which meshes let through, has just got an answer
// from the same adapter. And the admin port either is closed in the same way, or it is not behind the
// proxy and says that the server is ready. If it is silent, refuses connections or complains, then
// the adapter is to blame.
func (i *instance) meshed(a answer) error {
	if !unheard(a.verifyErr) || !a.asked {
		return a.verifyErr
	}
	report := i.result.Report
	if a.askErr == nil && !a.reply.unchanged {
		report = &a.reply.report
	}
	if unheard(a.askErr) || a.askErr == nil && report != nil && report.Ready {
		return errors.Join(errMeshed, a.verifyErr)
	}
	return a.verifyErr
}

// unheard says whether the other side closed a fresh connection before the first byte of an answer.
func unheard(err error) bool {
	e, ok := errors.AsType[*mcpprobe.Error](err)
	return ok && e.Unheard
}
