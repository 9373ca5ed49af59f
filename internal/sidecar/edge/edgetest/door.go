// Package edgetest puts front ends behind a door, for their tests.
package edgetest

import (
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
)

// Door returns a door that admits all hosts, and bodies of 32 MiB, unless change says
// otherwise.
func Door(routes map[string]edge.Route, change ...func(*edge.Options)) *edge.Door {
	options := edge.Options{
		Admit:  Hosts(),
		Budget: Bodies(edge.BodyLimits{BodyBytes: 32 << 20, ReadTimeout: time.Hour}),
		Routes: routes, Elsewhere: http.NotFound,
	}
	for _, apply := range change {
		apply(&options)
	}
	return edge.New(options)
}

// At returns a Door with one front end, at the paths that tests use.
func At(route edge.Route, change ...func(*edge.Options)) *edge.Door {
	return Door(map[string]edge.Route{"": route, "/": route, "/mcp": route}, change...)
}

// Bodies bounds each body, and has room for all.
func Bodies(limits edge.BodyLimits) *edge.Memory {
	return edge.NewMemory(limits, budget.New(1<<40, 1))
}

// Hosts admits requests for these hosts, and for addresses; for all if there are none.
func Hosts(hosts ...string) edge.Admitter {
	policy := &origin.Policy{Hosts: hosts}
	return &edge.Origins{Policy: func() *origin.Policy { return policy }}
}
