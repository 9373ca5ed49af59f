package backend

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/admin"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/stateless"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/streamable"
	"github.com/slipway-mcp/slipway/internal/sidecar/handle"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/metrics"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/option"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/news"
	"github.com/slipway-mcp/slipway/internal/sidecar/proxy"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/translate/tolegacy"
	"github.com/slipway-mcp/slipway/internal/sidecar/translate/tomodern"
)

// base is the part that all backends have in common: requests of clients without
// sessions, and the translation between eras. The methods of Backend that it has suit a
// backend without processes; those with processes replace some.
type base struct {
	*Env
	era sessionless.Era // of the server; Auto finds out

	endpoint *stateless.Endpoint // of clients without sessions
	// statelessClients runs the requests of these.
	statelessClients *sessionless.Principals
	// translatedSessions runs requests of sessions with a server that has none. Where the
	// server is a process, it is the same.
	translatedSessions *sessionless.Principals
	servers            []*sessionless.Principals // the two, or the one

	// sessionsOnly finds out whether the server has sessions only.
	sessionsOnly func(ctx context.Context) bool

	handles  *handle.Binder   // of callers
	toModern *tomodern.Server // serves clients without sessions by servers with sessions

	statelessMetrics sessionless.Metrics // of both
	toLegacyMetrics  tolegacy.Metrics    // of translated sessions
}

// acquireSession starts a server, or opens a session, for a client.
type acquireSession func(context.Context, *caller.Caller) (mux.Server, error)

// newBase returns a base that serves clients without sessions by servers of acquire. If the
// server has sessions only, and translation is on, it serves them by servers of withSession. The bound is
// for processes of verified principals, which share none if it is not zero.
func newBase(env *Env, era sessionless.Era, bound sessionless.Bound, acquire func(context.Context) (mux.Server, error), withSession acquireSession) *base {
	b := &base{Env: env, era: era, handles: env.newHandles()}
	b.toModern = b.newToModern(withSession)
	options := b.sessionlessOptions(era, acquire)
	if env.Translates() {
		options.Translate = func() sessionless.Translator { return b.toModern }
	}
	b.statelessClients = sessionless.NewPrincipals(options, bound)
	b.sessionsOnly = func(ctx context.Context) bool {
		era, err := b.statelessClients.FindOut(ctx)
		return err == nil && era == sessionless.Legacy
	}
	b.translatedSessions, b.servers = b.statelessClients, []*sessionless.Principals{b.statelessClients}
	b.endpoint = stateless.New(stateless.Options{
		Server: b.statelessClients, Handles: b.handles, TranslateSetting: b.Names.Of(option.StatelessClients), CallTimeout: b.CallTimeout,
		CommitAfter: stateless.CommitAfter, WriteTimeout: front.WriteTimeout, KeepAlive: front.KeepAliveInterval,
	})
	return b
}

func (b *base) sessionlessOptions(era sessionless.Era, acquire func(context.Context) (mux.Server, error)) sessionless.Options {
	processes := sessionless.MaxProcesses
	if b.Shared {
		processes = 1 // it may write one data file
	}
	return sessionless.Options{
		Acquire: acquire, Era: era,
		Limits: sessionless.Limits{
			Calls: sessionless.MaxCalls, Listens: sessionless.MaxListens, TargetCalls: sessionless.BusyCalls, Processes: processes,
			SendingBytes: b.sendingBytes(), BacklogBytes: session.PendingBytes, TotalBytes: b.heldBytes(), Memory: b.Memory,
			StartTimeout: b.StartTimeout, Silence: sessionless.DiscoverSilence, IdleTimeout: b.IdleTimeout, StuckTimeout: mux.StuckTimeout,
		},
		OneForAll: b.Shared,
		Metrics:   &b.statelessMetrics, Log: b.Log,
	}
}

// newToModern lets clients without sessions have as many servers as there may be sessions, so
// neither kind of client can lock out the other.
func (b *base) newToModern(acquire acquireSession) *tomodern.Server {
	return tomodern.New(tomodern.Options{
		Acquire: acquire, Serves: func(spoken string) []string {
			return b.revisions(mcpprobe.Server{ProtocolVersion: spoken}, sessionless.Legacy)
		},
		OfferRoots: b.OfferRoots, Log: b.Log,
		Limits: tomodern.Limits{
			Children: b.MaxSessions, PerKey: tomodern.ChildrenPerKey(b.MaxSessions), KeysPerPrincipal: tomodern.KeysPerPrincipal, URIs: tomodern.MaxURIs,
			StartTimeout: b.StartTimeout, AcquireTimeout: tomodern.AcquireTimeout, IdleTimeout: b.IdleTimeout, EvictIdle: tomodern.EvictIdle,
			ParkTTL: b.ParkTimeout, StuckTimeout: mux.StuckTimeout, CancelGrace: session.CancelGrace, Memory: b.Memory,
		},
	})
}

// Era is the era that a client or the adapter has found the server to speak, or Auto.
func (b *base) Era() sessionless.Era { return b.statelessClients.Found() }

// ServeStateless implements Backend. The manager's probe must learn quickly whether the server
// works, so the adapter does not start a process for it to find out which eras the server
// speaks: the probe opens a session.
func (b *base) ServeStateless(w http.ResponseWriter, r *edge.Request) {
	message := &r.Messages[0]
	if b.Config.Era != sessionless.Modern && message.Envelope.Kind == rpc.Request && r.Caller.Probe {
		r.Record.Front = edge.Stateless
		front.RefuseRevision(w, message.Envelope.ID.Of(message.Bytes), string(message.Envelope.ProtocolVersion))
		return
	}
	b.endpoint.Serve(w, r)
}

// group returns the name of the callers for whom the translation keeps processes, among them the one of the request. It
// is empty for a request that needs none.
func (b *base) group(r *edge.Request) string {
	if r.Batch || !stateless.MayReachServer(&r.Messages[0]) || !b.sessionsOnly(r.Context()) {
		return ""
	}
	message := r.Messages[0]
	message.From = &r.Caller
	return b.toModern.Group(message)
}

// Routes implements Backend.
func (b *base) Routes(path string, handler *streamable.Handler) map[string]edge.Route {
	route := handler.Route()
	if b.StatelessClients == config.Translate && !b.Shared { // a process that all clients share remembers all of them
		route.Group = b.group
	}
	routes := map[string]edge.Route{path: route}
	if b.UpstreamURL != nil {
		maps.Copy(routes, proxy.Metadata(b.UpstreamURL, path))
	}
	return routes
}

// ProbeOrder implements Backend. Most clients of a server begin with initialize.
func (b *base) ProbeOrder() (initializeFirst, only bool) {
	return b.era != sessionless.Modern, b.era != sessionless.Auto
}

// Run implements Backend.
func (b *base) Run(context.Context) {}

// Starts implements Backend.
func (b *base) Starts() Starts { return Starts{} }

// Rest implements Backend.
func (b *base) Rest(bool) {}

// Refuse implements Backend.
func (b *base) Refuse() { b.statelessClients.Refuse() }

// Drain implements Backend.
func (b *base) Drain(ctx context.Context) {
	var draining sync.WaitGroup
	for _, server := range b.servers {
		draining.Go(func() { server.Drain(ctx) })
	}
	draining.Wait()
}

// Close implements Backend.
func (b *base) Close() {
	for _, server := range b.servers {
		server.Close()
	}
}

// Parts implements Backend.
func (b *base) Parts() []admin.Part {
	parts := []admin.Part{{Name: "translation for clients without sessions", Locks: b.toModern.Locks}}
	for _, server := range b.servers {
		parts = append(parts, admin.Part{Name: "endpoint for clients without sessions", Locks: server.Locks})
	}
	return parts
}

// Changes implements Backend. Processes that the adapter does not start tell clients of changes themselves.
func (b *base) Changes() news.Hub { return b.statelessClients }

// Processes implements Backend.
func (b *base) Processes() adapterapi.Processes { return adapterapi.Processes{} }

// Metrics implements Backend.
func (b *base) Metrics() []metrics.Metric {
	return append(metrics.Stateless(b.endpoint.Metrics(), &b.statelessMetrics), metrics.Translation(b.toModern.Metrics(), &b.toLegacyMetrics)...)
}

// awaitState waits for the keeper to know enough. If the context ends first, it returns the
// last state with an error.
func (b *base) awaitState(ctx context.Context, enough func(*keeper.State) bool) (keeper.State, error) {
	for {
		state, changed := b.Keeper.State()
		if enough(&state) {
			return state, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return state, fmt.Errorf("wait for the server to say what it speaks: %w", ctx.Err())
		}
	}
}

// openTranslated opens a session with a server that has none. If lastCaller is not nil, the
// adapter makes requests of its own on behalf of that caller. The server has charged the
// budget for the messages that it delivers, and the session takes the charge over.
func (b *base) openTranslated(lastCaller *atomic.Pointer[caller.Caller], wrap func(session.Server) *session.Session) *session.Session {
	server := tolegacy.New(tolegacy.Options{
		Modern: modernServer{b.translatedSessions, lastCaller}, Limits: tolegacy.DefaultLimits(), Metrics: &b.toLegacyMetrics, Log: b.Log,
	})
	opened := wrap(server)
	server.Serve(func(message session.Message) {
		message.Charged = true
		opened.Deliver(message)
	}, opened.End)
	return opened
}

// newSession returns a session with a server.
func (e *Env) newSession(server session.Server) *session.Session {
	return session.New(server, e.SessionLimits(), &e.SessionMetrics)
}

// modernServer is the server of translated sessions.
type modernServer struct {
	server     *sessionless.Principals
	lastCaller *atomic.Pointer[caller.Caller]
}

func (m modernServer) Call(ctx context.Context, request session.Message) (tolegacy.Exchange, error) {
	if request.From == nil && m.lastCaller != nil {
		request.From = m.lastCaller.Load()
	}
	call, err := m.server.Call(ctx, request)
	if err != nil {
		return nil, err // and not an interface that holds a nil *Call
	}
	return call, nil
}

// Serves implements Backend.
func (b *base) Serves(server mcpprobe.Server) []string { return b.revisions(server, b.Era()) }

// revisions lists the protocol revisions that clients can use, newest first. found is the
// era that the server speaks besides the revision that it named, or Auto. The list is part of
// the catalog, so it depends on nothing that differs between replicas for long.
func (e *Env) revisions(server mcpprobe.Server, found sessionless.Era) []string {
	var served []string
	if e.Translates() || found == sessionless.Modern || server.ProtocolVersion >= front.Revision20260728 {
		served = append(served, front.Revision20260728)
	}
	for _, revision := range slices.Backward(front.Revisions()) {
		if e.hasSessionsOf(revision, server.ProtocolVersion) {
			served = append(served, revision)
		}
	}
	return served
}

// hasSessionsOf says whether clients can have sessions of a revision. spoken is the revision
// that the server named when the keeper asked for the newest. A server that named one without
// sessions has none, and the adapter translates all of them. Other servers speak the older
// revisions, too. A process that sessions share speaks only the one of its initialize.
func (e *Env) hasSessionsOf(revision, spoken string) bool {
	switch {
	case spoken >= front.Revision20260728:
		return true
	case e.Shared:
		return revision == spoken
	default:
		return revision <= spoken
	}
}
