package backend

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/streamable"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/metrics"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/proxy"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// streamableHTTP has a server that speaks Streamable HTTP. It passes requests of clients on to
// the server, except those of clients that have no era in common with it.
type streamableHTTP struct {
	*base
	proxy  *proxy.Proxy
	server *remote.Server // for what is translated

	support sessionSupport
	// translated serves sessions that the adapter has, and the server has not.
	translated *streamable.Handler
}

// ownCalls is room on a connection for requests of the adapter itself, such as for the list of
// tools.
const ownCalls = 64

// NewProxy returns a backend for a server that speaks Streamable HTTP. Translated clients
// share connections with the server; all others have their own.
func NewProxy(env *Env) Backend {
	p := &streamableHTTP{server: remote.New(remote.Options{
		URL: env.UpstreamURL, MessageBytes: env.LineBytes, Memory: env.Memory, SendTimeout: mux.SendTimeout,
		Calls: sessionless.MaxCalls + sessionless.MaxListens + ownCalls,
	})}
	p.support.ask, p.support.log = p.server.Initializes, env.Log
	p.base = newBase(env, sessionless.Legacy, sessionless.Bound{}, nil, p.server.DialStateful)
	p.sessionsOnly = p.hasSessionsOnly
	translated := p.sessionlessOptions(sessionless.Modern, p.server.DialStateless)
	translated.Limits.Processes = 1                                                   // there is one server, however many connections
	translated.ManyListens = true                                                     // each with the token of its client
	p.translatedSessions = sessionless.NewPrincipals(translated, sessionless.Bound{}) // the server is one for all
	p.servers = append(p.servers, p.translatedSessions)
	p.proxy = proxy.New(proxy.Options{
		Translate: p.translate, Initialize: p.initialize,
		URL: env.UpstreamURL, MintID: env.MintID, Keeper: env.keeper(), Owner: env.Owner, Number: env.nextNumber, Sessions: env.Sessions,
		Handles: p.handles, Memory: env.Memory,
		Limits: proxy.Limits{
			Calls: env.CallsPerSession, Streams: env.StreamsPerSession, Single: sessionless.MaxCalls, Listens: sessionless.MaxListens,
			AnswerBytes: env.BodyBytes, MessageBytes: env.LineBytes, MaxLifetime: env.MaxLifetime,
			OpenTimeout: env.StartTimeout, CallTimeout: env.CallTimeout, WriteTimeout: front.WriteTimeout, KeepAlive: front.KeepAliveInterval,
		},
	})
	return p
}

// keeper returns what makes ids that outlive the adapter, if its keys do.
func (e *Env) keeper() proxy.Keeper {
	if e.Keys != nil && e.Keys.Shared() {
		return e.Keys
	}
	return nil
}

// spoken is the revision by which the keeper speaks with the server, and the digest of the
// server's catalog. Both are empty if the keeper cannot speak with it. Clients wait for the
// first attempt of the keeper.
func (p *streamableHTTP) spoken(ctx context.Context) (revision, digest string) {
	state, err := p.awaitState(ctx, func(s *keeper.State) bool { return s.Reason != adapterapi.Starting })
	if err != nil || state.Catalog == nil {
		return "", ""
	}
	return state.Catalog.Server.ProtocolVersion, state.Catalog.Digest
}

// hasSessions says whether the server itself has sessions. The adapter asks a server that
// speaks the revision without sessions, when a client first wants a session.
func (p *streamableHTTP) hasSessions(ctx context.Context) bool {
	if p.Config.Era != sessionless.Auto {
		return p.Config.Era == sessionless.Legacy
	}
	revision, digest := p.spoken(ctx)
	return revision < front.Revision20260728 || p.support.has(ctx, digest)
}

// Open implements Backend. It opens sessions for clients of another transport than the
// server's, and for all clients of a server without sessions.
func (p *streamableHTTP) Open(ctx context.Context, from *caller.Caller) (*session.Session, error) {
	if !p.hasSessions(ctx) {
		// The token of a client may change from one request to the next, as tokens expire.
		last := &atomic.Pointer[caller.Caller]{}
		last.Store(from.Lasting())
		return p.numbered(p.openTranslated(last, func(server session.Server) *session.Session { return p.newCheckedSession(server, last) }), nil)
	}
	connection, err := p.server.DialStateful(ctx, from)
	if err != nil {
		return nil, err
	}
	return p.numbered(p.openRemote(bindTo(from, connection, p.proxy.Handles)), nil)
}

// initialize opens a session for a client of a server that has none. It returns false if the
// server has sessions.
func (p *streamableHTTP) initialize(w http.ResponseWriter, r *edge.Request) bool {
	if p.hasSessions(r.Context()) {
		return false
	}
	p.translated.Serve(w, r)
	return true
}

// translate answers a client without sessions of a server that is known to have sessions only.
// It returns false for other servers.
func (p *streamableHTTP) translate(w http.ResponseWriter, r *edge.Request) bool {
	if !p.hasSessionsOnly(r.Context()) {
		return false
	}
	p.base.ServeStateless(w, r)
	return true
}

func (p *streamableHTTP) hasSessionsOnly(ctx context.Context) bool {
	if p.Config.Era != sessionless.Auto {
		return p.Config.Era == sessionless.Legacy
	}
	revision, _ := p.spoken(ctx)
	return revision != "" && revision < front.Revision20260728
}

// ServeStateless implements Backend.
func (p *streamableHTTP) ServeStateless(w http.ResponseWriter, r *edge.Request) {
	p.proxy.ServeStateless(w, r)
}

// Routes implements Backend. Requests of translated sessions go to the handler, and all others
// to the proxy.
func (p *streamableHTTP) Routes(path string, handler *streamable.Handler) map[string]edge.Route {
	p.translated = handler
	routes := p.base.Routes(path, handler)
	translated, native := routes[path], p.proxy.Route()
	of := func(r *edge.Request) *edge.Route {
		if _, ok := p.Sessions.Find(r.Head(front.HeaderSession)).(*session.Session); ok {
			return &translated
		}
		return &native
	}
	routes[path] = edge.Route{
		Methods: native.Methods,
		Missing: native.Missing,
		Group:   translated.Group,
		Check:   func(w http.ResponseWriter, r *edge.Request) bool { return of(r).Check(w, r) },
		Serve:   func(w http.ResponseWriter, r *edge.Request) { of(r).Serve(w, r) },
	}
	return routes
}

// Connect implements Backend.
func (p *streamableHTTP) Connect(ctx context.Context, _ bool) (keeper.Connection, error) {
	return connectURL(ctx, p.proxy.Reach, mcpprobe.HTTP(p.UpstreamURL.String(), http.Header{}))
}

// ProbeOrder implements Backend. A request without a session costs an HTTP server nothing.
func (p *streamableHTTP) ProbeOrder() (initializeFirst, only bool) {
	return p.Config.Era == sessionless.Legacy, p.Config.Era != sessionless.Auto
}

// Metrics implements Backend.
func (p *streamableHTTP) Metrics() []metrics.Metric {
	return append(p.base.Metrics(), metrics.Proxy(p.proxy)...)
}
