// Package sidecar wires the data plane: an MCP server that speaks on standard input and output,
// or over HTTP, becomes an HTTP endpoint with sessions. Each part has a package of its own. The
// data plane knows nothing of Kubernetes.
package sidecar

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/admin"
	"github.com/slipway-mcp/slipway/internal/sidecar/backend"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/internal/sidecar/metrics"
	"github.com/slipway-mcp/slipway/internal/sidecar/option"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/settings"
)

// adminConnections is far more than the manager, the kubelet and a scraper open: each makes one
// request after the other.
const adminConnections = 256

// Adapter is the data plane of one server.
type Adapter struct {
	env     *backend.Env
	backend backend.Backend
	// container is where processes start; nil if that is always there.
	container child.Container
	registry  *prometheus.Registry
	requests  *edge.Metrics
	bodies    *edge.Memory
	auditor   *edge.Auditor // nil if there is no log for it
	clients   *listener.Server
	admin     *listener.Server
	peers     *peers // nil if there are none
	tuneHeap  func(context.Context)
	began     time.Time
	lifecycle
}

// New returns an adapter for the server that starter starts, or that listens at the configured
// URL. Servers that speak HTTP need no starter.
func New(starter child.Starter, c config.Config) *Adapter { return newAdapter(starter, c, newBackend) }

// newAdapter is New with another way to reach the server.
func newAdapter(starter child.Starter, c config.Config, newBackend func(*backend.Env, child.Starter) backend.Backend) *Adapter {
	if c.Settings == nil {
		c.Settings = settings.New(settings.Options{Start: settings.Values{Origins: c.Origins}})
	}
	if c.Access == nil {
		c.Access = access.New(access.Options{Log: c.Log})
	}
	a := &Adapter{
		env:      &backend.Env{Config: c, Memory: budget.New(c.Budget(), c.MaxSessions)},
		registry: prometheus.NewRegistry(), tuneHeap: budget.TuneHeap, began: time.Now(), lifecycle: newLifecycle(),
	}
	a.env.Sessions = session.NewRegistry(session.Policy{
		Max: c.MaxSessions, Full: c.Names.Reached(places.ErrFull, option.MaxSessions, c.MaxSessions), Patience: c.Patience,
		IdleTimeout: c.IdleTimeout, MaxLifetime: c.MaxLifetime, Opened: a.logSession,
	})
	a.requests = edge.NewMetrics(a.registry)
	if c.Audit != nil {
		a.auditor = &edge.Auditor{Gate: c.Access, Log: c.Audit}
	}
	a.bodies = edge.NewMemory(edge.BodyLimits{BodyBytes: c.BodyBytes, Name: c.Names.Of(option.BodyBytes), ReadTimeout: edge.ReadTimeout}, a.env.Memory)
	a.backend = newBackend(a.env, starter)
	if c.Transport == config.Stdio { // the launcher of another server does not connect
		a.container, _ = starter.(child.Container)
	}
	a.env.Keeper = a.newKeeper()
	routes := a.routes()
	if c.Peers {
		a.peers = a.newPeers(routes)
	}
	a.clients = listener.NewServer(a.door(routes), c.Connections(), c.Log)
	options := admin.Options{
		State: a.env.Keeper.State, Sessions: a.countSessions,
		SessionIDs: a.sessionIDs, ListSessions: a.listSessions, EndSession: a.endSession, Processes: a.backend.Processes, Keys: c.Keys, Settings: c.Settings, Access: c.Access,
		Metrics: promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}),
		Parts:   a.parts(),
	}
	if a.peers != nil {
		options.Peers = a.peers.roster
	}
	a.admin = listener.NewServer(admin.Handler(options), adminConnections, c.Log)
	a.registerMetrics()
	c.Access.OnChange(a.recheckSessions)
	return a
}

// newBackend returns the backend for the transport of the server.
func newBackend(env *backend.Env, starter child.Starter) backend.Backend {
	switch {
	case env.Transport == config.StreamableHTTP:
		return backend.NewProxy(env)
	case env.Transport == config.SSE:
		return backend.NewSSE(env)
	case env.Shared:
		return backend.NewShared(env, starter)
	default:
		return backend.NewProcesses(env, starter)
	}
}

func (a *Adapter) newKeeper() *keeper.Keeper {
	initializeFirst, only := a.backend.ProbeOrder()
	return keeper.New(keeper.Options{
		Connect: a.backend.Connect, Starts: a.env.Transport == config.Stdio, Container: a.container,
		StartTimeout: a.env.StartTimeout, Patience: keeper.Patience, PingInterval: keeper.PingInterval, PingTimeout: keeper.PingTimeout, Settle: keeper.Settle,
		Probe: mcpprobe.Options{SkipDiscover: initializeFirst}, Pinned: only,
		Serves: a.backend.Serves,
		Log:    a.env.Log.WithName("keeper"),
	})
}

// registerMetrics registers every metric but those of requests, which the door registers.
func (a *Adapter) registerMetrics() {
	metrics.RegisterBuild(a.registry)
	a.registry.MustRegister(a.env.Access)
	if lost := a.env.Audit; lost != nil {
		a.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "slipway", Subsystem: "adapter", Name: "audit_lost_total", Help: "Audit lines lost because the container runtime did not read the adapter's standard output fast enough.",
		}, func() float64 { return float64(lost.Lost()) }))
	}
	metrics.Register(a.registry, slices.Concat(
		metrics.Keeper(func() bool { state, _ := a.env.Keeper.State(); return state.Ready }),
		metrics.Connections(a.clients),
		metrics.Memory(a.env.Memory, a.bodies),
		metrics.Sessions(a.env.Sessions, a.env.MaxSessions, &a.env.SessionMetrics),
		a.backend.Metrics(),
	))
	if a.peers != nil {
		metrics.Register(a.registry, append(metrics.Peers(a.peers.relay, a.peers.roster, a.peers.news), metrics.Placement(a.peers.placer)...))
	}
}

// parts are shared by all clients, so none of them may be stuck.
func (a *Adapter) parts() []admin.Part {
	return append([]admin.Part{
		{Name: "registry of sessions", Locks: a.env.Sessions.Locks},
		{Name: "keeper", Locks: func() { a.env.Keeper.State() }},
	}, a.backend.Parts()...)
}

// countSessions is the report for the manager.
func (a *Adapter) countSessions() adapterapi.Sessions {
	return adapterapi.Sessions{
		Open: int64(a.env.Sessions.Len()), Limit: int64(a.env.MaxSessions), Refused: a.env.Sessions.Places.Refused(),
		Spares: int64(a.backend.Starts().Spares),
	}
}
