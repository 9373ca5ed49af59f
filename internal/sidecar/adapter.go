// Package sidecar assembles the data plane: an MCP server that speaks on standard
// input and output becomes an HTTP endpoint with sessions. It knows nothing of
// Kubernetes.
package sidecar

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/admin"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/sse"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/streamable"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/internal/sidecar/option"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
	"github.com/slipway-mcp/slipway/internal/sidecar/settings"
	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
	"github.com/slipway-mcp/slipway/internal/sidecar/upstream"
)

// Path is where MCP clients connect.
const Path = "/mcp"

// Transport is what the server itself speaks.
type Transport uint8

// The transports.
const (
	Stdio Transport = iota
	StreamableHTTP
	SSE
)

// Config says how the adapter behaves. The zero value of a field is not a default;
// Defaults has them.
type Config struct {
	Transport   Transport
	UpstreamURL *url.URL // of a server that speaks HTTP
	Framing     rpc.Framing
	Era         stateless.Era // of a stdio server; Auto finds out
	Shared      bool          // one process for all sessions of a stdio server
	// StatelessClients is for clients of 2026-07-28 of servers that have sessions only.
	StatelessClients StatelessClients
	OfferRoots       bool          // let servers with sessions ask clients without for their roots
	LegacySSE        bool          // also serve clients that know only the transport of 2024-11-05
	Origins          origin.Policy // without Settings

	MaxSessions  int
	Patience     time.Duration // of a client that finds every session slot taken; 0 ends no session for it
	IdleTimeout  time.Duration
	MaxLifetime  time.Duration
	CallTimeout  time.Duration
	ParkTimeout  time.Duration
	DrainTimeout time.Duration
	SettleTime   time.Duration // for clients to learn that the instance goes away, before it drains
	OpenTimeout  time.Duration
	Warm         int

	MemoryLimit       int64 // of the adapter's container; 0 is none
	BodyBytes         int64
	LineBytes         int
	ReplayBytes       int
	StreamsPerSession int
	CallsPerSession   int
	ConcurrentStarts  int

	Owner sessionid.Owner
	Keys  *keys.Keys
	// Settings are what changes while the adapter runs; nil is Origins, for ever.
	Settings *settings.Live
	Log      logr.Logger

	// Names are what texts for users call the options.
	Names option.Names

	// Recorded is told of every request that is over; may be nil.
	Recorded func(edge.Record)
}

// Defaults are what an adapter does when nobody says otherwise.
func Defaults() Config {
	return Config{
		MaxSessions:  20,
		Patience:     places.Patience,
		IdleTimeout:  30 * time.Minute,
		MaxLifetime:  24 * time.Hour,
		CallTimeout:  10 * time.Minute,
		ParkTimeout:  10 * time.Minute,
		DrainTimeout: time.Minute,
		OpenTimeout:  time.Minute,
		Warm:         1,

		BodyBytes:         32 << 20,
		LineBytes:         64 << 20,
		ReplayBytes:       1 << 20,
		StreamsPerSession: 16,
		CallsPerSession:   1024,
		ConcurrentStarts:  4,
	}
}

// Validate says which values make no sense, all of them at once.
func (c *Config) Validate() error {
	var problems []error
	for _, limit := range []struct {
		name        string
		value, most int64
		least       int64
	}{
		{"max-sessions", int64(c.MaxSessions), 1 << 20, 1},
		{"memory-limit", c.MemoryLimit, 1 << 40, 0},
		{"warm", int64(c.Warm), 1 << 20, 0},
		{"limit-body-bytes", c.BodyBytes, 1 << 32, 1 << 10},
		{"limit-line-bytes", int64(c.LineBytes), 1 << 32, 1 << 10},
		{"limit-replay-bytes", int64(c.ReplayBytes), 1 << 32, 0},
		{"limit-streams", int64(c.StreamsPerSession), 1 << 20, 1},
		{"limit-calls", int64(c.CallsPerSession), 1 << 20, 1},
		{"limit-starts", int64(c.ConcurrentStarts), 1 << 20, 1},
	} {
		if limit.value < limit.least || limit.value > limit.most {
			problems = append(problems, fmt.Errorf("%s is %d, want %d to %d", limit.name, limit.value, limit.least, limit.most))
		}
	}
	for _, limit := range []struct {
		name         string
		value, least time.Duration
	}{
		{"idle-timeout", c.IdleTimeout, time.Second},
		{"max-lifetime", c.MaxLifetime, time.Second},
		{"call-timeout", c.CallTimeout, time.Second},
		{"park-timeout", c.ParkTimeout, time.Second},
		{"open-timeout", c.OpenTimeout, time.Second},
		{"drain-timeout", c.DrainTimeout, 0},
		{"settle-time", c.SettleTime, 0},
	} {
		if limit.value < limit.least {
			problems = append(problems, fmt.Errorf("%s is %s, want at least %s", limit.name, limit.value, limit.least))
		}
	}
	return errors.Join(append(problems, c.checkMemory(), c.Origins.Validate())...)
}

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
	config   Config
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
func New(starter child.Starter, config Config) *Adapter {
	if config.Settings == nil {
		config.Settings = settings.New(settings.Options{Start: settings.Values{Origins: config.Origins}})
	}
	a := &Adapter{
		config:   config,
		registry: prometheus.NewRegistry(),
		leaving:  make(chan struct{}),
		draining: make(chan struct{}),
		drained:  make(chan struct{}),
	}
	a.hurried, a.hurry = context.WithCancel(context.Background())
	a.sessions = session.NewRegistry(session.Policy{
		Max: config.MaxSessions, Full: config.Names.Reached(places.ErrFull, option.MaxSessions, config.MaxSessions), Patience: config.Patience,
		IdleTimeout: config.IdleTimeout, MaxLifetime: config.MaxLifetime, Opened: a.noteSession,
	})
	a.requests = edge.NewMetrics(a.registry)
	a.memory = budget.New(config.budget(), config.MaxSessions)
	a.bodies = edge.NewMemory(edge.BodyLimits{BodyBytes: config.BodyBytes, Name: config.Names.Of(option.BodyBytes), ReadTimeout: readTimeout}, a.memory)
	a.backend = a.newBackend(starter)
	a.keeper = keeper.New(keeper.Options{
		Connect:      a.backend.connect,
		StartTimeout: config.OpenTimeout, Patience: patience, PingInterval: pingInterval, PingTimeout: pingTimeout, Settle: settle,
		ConnectStateless: a.backend.connectStateless,
		// A server on standard input and output is asked for a session first, as most of
		// its clients do.
		Probe:  mcpprobe.Options{SkipDiscover: config.Transport != StreamableHTTP && config.Era != stateless.Modern},
		Pinned: config.Transport == SSE || config.Era != stateless.Auto,
		Serves: func(own mcpprobe.Server) []string { return a.config.serves(own, a.backend.eras.stateless.Found()) },
		Log:    config.Log.WithName("keeper"),
	})
	a.clients = listener.NewServer(a.door(), config.connections(), config.Log)
	a.admin = listener.NewServer(admin.Handler(admin.Options{
		State: a.keeper.State, Sessions: a.countSessions, Keys: config.Keys, Settings: config.Settings, Metrics: a.metricsHandler(),
		Parts: a.parts(),
	}), adminConnections, config.Log)
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
	if c.Transport != Stdio {
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
