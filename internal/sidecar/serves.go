package sidecar

import (
	"slices"

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
)

// serves are the protocol revisions that clients can use at the adapter, newest first,
// given what the server says of itself, and which era it was found to speak besides. They
// are part of the catalogue, so they depend on nothing that differs between replicas for
// long.
func (a *Adapter) serves(own mcpprobe.Server, found stateless.Era) []string {
	var served []string
	if a.config.Translates() || found == stateless.Modern || own.ProtocolVersion >= front.Revision20260728 {
		served = append(served, front.Revision20260728)
	}
	for _, revision := range slices.Backward(front.Revisions()) {
		if a.hasSessionsOf(revision, own.ProtocolVersion) {
			served = append(served, revision)
		}
	}
	return served
}

// hasSessionsOf says whether clients can have sessions of a revision if the server spoke
// another when it was asked for the newest. A server that spoke without a session has
// none, and then all are translated. Others speak what is older than that, too; a process
// that sessions share only speaks the one that it was initialized with.
func (a *Adapter) hasSessionsOf(revision, spoken string) bool {
	switch {
	case spoken >= front.Revision20260728:
		return true
	case a.config.Shared:
		return revision == spoken
	default:
		return revision <= spoken
	}
}
