// Package sidecar assembles the data plane: an MCP server that speaks on standard
// input and output becomes an HTTP endpoint with sessions. It knows nothing of
// Kubernetes.
package sidecar

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/admin"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/sse"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/streamable"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/internal/sidecar/option"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/settings"
	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
	"github.com/slipway-mcp/slipway/internal/sidecar/upstream"
)

// Path is where MCP clients connect.
const Path = "/mcp"

// What nobody needs to set.
const (
	startHold       = 5 * time.Second
	eofGrace        = 2 * time.Second
	termGrace       = 3 * time.Second
	cancelGrace     = 5 * time.Second
	deliveryTimeout = 10 * time.Second
	requestTimeout  = 10 * time.Minute
	sendTimeout     = 10 * time.Second
	readTimeout     = 30 * time.Second
	commitAfter     = time.Second
	retry           = time.Second
	pendingBytes    = 4 << 20
	detachedStreams = 64
	serverRequests  = 256
	settle          = time.Second
	stuckTimeout    = time.Minute
	sharedCalls     = 4096
	subscriptions   = 256
	drainLinger     = 30 * time.Second
	// adminConnections is far more than the manager, the kubelet and a scraper open: each
	// makes one request after the other.
	adminConnections = 256

	statelessCalls   = 4096
	statelessListens = 1024
	statelessCrowd   = 16
	statelessMost    = 4
	statelessCommit  = 10 * time.Second
	discoverSilence  = 5 * time.Second

	leaseTimeout = 10 * time.Second
	// evictIdle is less than leaseTimeout, so that a call that waits sees an idle process make room.
	evictIdle = 2 * time.Second
)

// A server that stops to answer is known to be broken after the sum of these, and
// the kubelet asks within two seconds more: together less than promise.Broken.
const (
	pingInterval = 4 * time.Second
	pingTimeout  = 3 * time.Second
	patience     = 3 * time.Second
)

// Adapter is the data plane of one server.
type Adapter struct {
	config   config.Config
	backend  backend
	sessions *session.Registry
	keeper   *keeper.Keeper
	metrics  session.Metrics
	registry *prometheus.Registry
	requests *edge.Metrics
	memory   *budget.Budget
	bodies   *edge.Memory
	number   atomic.Uint64 // of the last session that has no process of its own
	clients  *listener.Server
	admin    *listener.Server

	hurried    context.Context // ends when a drain is to wait no longer
	hurry      context.CancelFunc
	startLeave sync.Once
	leaving    chan struct{}
	startDrain sync.Once
	draining   chan struct{}
	drained    chan struct{}
}

// New returns an adapter for the server that starter starts, or that listens at
// the configured URL.
func New(starter child.Starter, c config.Config) *Adapter {
	if c.Settings == nil {
		c.Settings = settings.New(settings.Options{Start: settings.Values{Origins: c.Origins}})
	}
	a := &Adapter{
		config:   c,
		registry: prometheus.NewRegistry(),
		leaving:  make(chan struct{}),
		draining: make(chan struct{}),
		drained:  make(chan struct{}),
	}
	a.hurried, a.hurry = context.WithCancel(context.Background())
	a.sessions = session.NewRegistry(session.Policy{
		Max: c.MaxSessions, Full: c.Names.Reached(places.ErrFull, option.MaxSessions, c.MaxSessions), Patience: c.Patience,
		IdleTimeout: c.IdleTimeout, MaxLifetime: c.MaxLifetime, Opened: a.noteSession,
	})
	a.requests = edge.NewMetrics(a.registry)
	a.memory = budget.New(c.Budget(), c.MaxSessions)
	a.bodies = edge.NewMemory(edge.BodyLimits{BodyBytes: c.BodyBytes, Name: c.Names.Of(option.BodyBytes), ReadTimeout: readTimeout}, a.memory)
	a.backend = a.newBackend(starter)
	a.keeper = keeper.New(keeper.Options{
		Connect:      a.backend.connect,
		StartTimeout: c.OpenTimeout, Patience: patience, PingInterval: pingInterval, PingTimeout: pingTimeout, Settle: settle,
		ConnectStateless: a.backend.connectStateless,
		// A server on standard input and output is asked for a session first, as most of
		// its clients do.
		Probe:  mcpprobe.Options{SkipDiscover: c.Transport != config.StreamableHTTP && c.Era != stateless.Modern},
		Pinned: c.Transport == config.SSE || c.Era != stateless.Auto,
		Serves: func(own mcpprobe.Server) []string { return a.serves(own, a.backend.eras.stateless.Found()) },
		Log:    c.Log.WithName("keeper"),
	})
	a.clients = listener.NewServer(a.door(), c.Connections(), c.Log)
	a.admin = listener.NewServer(admin.Handler(admin.Options{
		State: a.keeper.State, Sessions: a.countSessions, Keys: c.Keys, Settings: c.Settings, Metrics: a.metricsHandler(),
		Parts: a.parts(),
	}), adminConnections, c.Log)
	return a
}

func (a *Adapter) mintID() string { return a.config.Keys.Mint(a.config.Owner) }

// parts are what all clients share, and what no client gets past while it is stuck.
func (a *Adapter) parts() []admin.Part {
	parts := []admin.Part{
		{Name: "registry of sessions", Locks: a.sessions.Locks},
		{Name: "keeper", Locks: func() { a.keeper.State() }},
		{Name: "translation for clients without sessions", Locks: a.backend.eras.modern.Locks},
	}
	for _, endpoint := range a.backend.eras.endpoints() {
		parts = append(parts, admin.Part{Name: "endpoint for clients without sessions", Locks: endpoint.Locks})
	}
	return append(parts, a.backend.parts...)
}

// countSessions is what the manager is told of the sessions.
func (a *Adapter) countSessions() adapterapi.Sessions {
	return adapterapi.Sessions{
		Open: int64(a.sessions.Len()), Limit: int64(a.config.MaxSessions), Refused: a.sessions.Places.Refused(),
	}
}

// door is what clients talk to: one way in, and behind it a front end for each path.
func (a *Adapter) door() *edge.Door {
	c := &a.config
	return edge.New(edge.Options{
		Admit: &edge.Origins{
			Policy: c.Settings.Origins, Names: origin.Names{Hosts: c.Names.Of(option.AllowedHosts), Origins: c.Names.Of(option.AllowedOrigins)},
		},
		Authenticate: edge.Unverified{IsProbe: c.Keys.IsProbe},
		Budget:       a.bodies,
		Routes:       a.routes(),
		Elsewhere:    a.elsewhere,
		Closing:      a.leaving,
		Metrics:      a.requests,
		Refusals:     &edge.Refusals{Log: c.Log},
		Closed:       c.Recorded,
	})
}

// routes are the front ends by their paths.
func (a *Adapter) routes() map[string]edge.Route {
	c := &a.config
	options := streamable.Options{
		Sessions: a.sessions, Open: a.backend.open, MintID: a.mintID, Stateless: a.serveStateless,
		OpenTimeout: c.OpenTimeout, WriteTimeout: front.WriteTimeout, KeepAlive: front.KeepAliveInterval, Retry: retry,
	}
	routes := map[string]edge.Route{}
	if c.LegacySSE {
		routes = sse.New(sse.Options{
			Sessions: a.sessions, Open: a.backend.open, MintToken: a.mintID, PostTo: sse.MessagesPath,
			OpenTimeout: c.OpenTimeout, WriteTimeout: front.WriteTimeout, KeepAlive: front.KeepAliveInterval,
		}).Routes()
		routes[sse.MessagesPath] = a.logInitialize(routes[sse.MessagesPath])
	}
	if proxy := a.backend.proxy; proxy != nil {
		options.Stateless = proxy.ServeStateless
		a.backend.proxyEras.translated = streamable.New(options)
		routes[Path] = a.backend.proxyEras.route(proxy)
	} else {
		routes[Path] = streamable.New(options).Route()
	}
	routes[Path] = introducing(routes[Path])
	if c.Transport != config.Stdio {
		maps.Copy(routes, upstream.Metadata(c.UpstreamURL, Path))
	}
	return routes
}

// serveStateless answers messages of the stateless revision. The manager's probe has to
// say quickly whether the server works, for which it takes no process more to find out
// what the server speaks besides.
func (a *Adapter) serveStateless(w http.ResponseWriter, r *edge.Request) {
	message := &r.Messages[0]
	if a.config.Era != stateless.Modern && message.Envelope.Kind == rpc.Request && r.Caller.Probe {
		r.Record.Front = edge.Stateless
		front.RefuseRevision(w, message.Envelope.ID.Of(message.Bytes), string(message.Envelope.ProtocolVersion))
		return
	}
	a.backend.eras.stateless.Serve(w, r)
}

// elsewhere tells whoever asks for another path where the server is.
func (a *Adapter) elsewhere(w http.ResponseWriter, r *http.Request) {
	text := "there is nothing at " + rpc.Clip(r.URL.EscapedPath()) + ": the MCP endpoint is " + Path
	switch path := r.URL.Path; {
	case a.config.LegacySSE:
		text += ", and " + sse.StreamPath + " for clients that know only that transport"
	case path == sse.StreamPath || path == sse.MessagesPath:
		text += "; clients that know only the transport of " + sse.StreamPath + " are served with " + a.config.Names.Of(option.LegacySSE)
	}
	front.RefusePlain(w, http.StatusNotFound, text)
}

// exitGrace is how long it may take to learn why a server's output has ended.
const exitGrace = 100 * time.Millisecond
