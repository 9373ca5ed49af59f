package sidecar

import (
	"slices"

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
)

// serves are the protocol revisions that clients can use at the adapter, newest first,
// given what the server says of itself. They are part of the catalogue, so they depend on
// nothing that differs between replicas, or that only time tells, such as whether a
// client has made the adapter find out which eras the server speaks besides: of those
// that are translated and those that are not, clients can use both.
func (c *Config) serves(own mcpprobe.Server) []string {
	served := []string{frontend.Revision20260728}
	for _, revision := range slices.Backward(frontend.Revisions()) {
		if c.hasSessionsOf(revision, own.ProtocolVersion) {
			served = append(served, revision)
		}
	}
	return served
}

// hasSessionsOf says whether clients can have sessions of a revision if the server spoke
// another when it was asked for the newest. A server that spoke without a session has
// none, and then all are translated. Others speak what is older than that, too; a process
// that sessions share only speaks the one that it was initialized with.
func (c *Config) hasSessionsOf(revision, spoken string) bool {
	switch {
	case spoken >= frontend.Revision20260728:
		return true
	case c.Shared:
		return revision == spoken
	default:
		return revision <= spoken
	}
}
