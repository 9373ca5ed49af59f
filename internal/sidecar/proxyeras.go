package sidecar

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/streamable"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/upstream"
)

// proxyEras decides which clients of a server that speaks Streamable HTTP speak with it
// themselves, and which are translated.
type proxyEras struct {
	adapter *Adapter
	legacy  *upstream.Legacy
	modern  *upstream.Modern

	// translated has the sessions that the server does not have.
	translated *streamable.Handler

	mu     sync.Mutex
	said   opinion
	asking *question // what the server is asked now, or nil
}

// opinion is what the server said when it was asked whether it has sessions.
type opinion struct {
	of       string // the catalogue of the server that was asked
	sessions bool
	until    time.Time // when it is to be asked again; never if that is zero
}

// holds says whether a server with the catalogue need not be asked.
func (o *opinion) holds(digest string) bool {
	return o.of == digest && (o.until.IsZero() || time.Now().Before(o.until))
}

// question is what all who want to know wait for.
type question struct {
	answered chan struct{}
	sessions bool
}

// ownCalls is room for what is asked of a connection besides what clients ask.
const ownCalls = 64

func (a *Adapter) newProxyEras() *proxyEras {
	options := upstream.ConnectionOptions{
		URL: a.config.UpstreamURL, MessageBytes: a.config.LineBytes, Memory: a.memory, SendTimeout: sendTimeout,
		Calls: statelessCalls + statelessListens + ownCalls, // what may be asked of one connection
	}
	return &proxyEras{adapter: a, legacy: upstream.NewLegacy(options), modern: upstream.NewModern(options)}
}

// newEras has what is translated share connections with the server, as sessions of
// clients that are not translated have their own.
func (p *proxyEras) newEras() *eras {
	a := p.adapter
	e := a.newEras(sessionless.Legacy, nil, func(ctx context.Context, from *caller.Caller) (mux.Server, error) {
		return p.dialLegacy(ctx, from)
	})
	below := a.sessionlessOptions(sessionless.Modern, func(ctx context.Context) (mux.Server, error) {
		connection, err := p.modern.Dial(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", notReached, err)
		}
		return connection, nil
	})
	below.Limits.Processes = 1 // there is one server, however many connections
	below.ManyListens = true   // each by whoever wants it, with what they have shown
	e.below = sessionless.New(below)
	return e
}

// dialLegacy is for one session of the caller's.
func (p *proxyEras) dialLegacy(ctx context.Context, from *caller.Caller) (*upstream.Connection, error) {
	connection, err := p.legacy.Dial(ctx, from)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", notReached, err)
	}
	return connection, nil
}

// spoken is the revision by which the keeper speaks with the server, and what the server
// is known by; empty if it does not. Whoever comes before it has tried waits.
func (p *proxyEras) spoken(ctx context.Context) (revision, digest string) {
	state, err := p.adapter.looked(ctx)
	if err != nil || state.Catalog == nil {
		return "", ""
	}
	return state.Catalog.Server.ProtocolVersion, state.Catalog.Digest
}

// isLegacy says that the server is known to speak revisions with sessions only.
func (p *proxyEras) isLegacy(ctx context.Context) bool {
	revision, _ := p.spoken(ctx)
	return revision != "" && revision < front.Revision20260728
}

const (
	// askTimeout is for the server to say whether it has sessions.
	askTimeout = 5 * time.Second
	// askAgain is how long an answer is good for that may be another next time.
	askAgain = 10 * time.Second
)

// hasSessions says whether the server itself has sessions. One that speaks the revision
// without is asked when somebody wants a session, once for all who do. As long as it does
// not say, its clients ask it themselves.
func (p *proxyEras) hasSessions(ctx context.Context) bool {
	revision, digest := p.spoken(ctx)
	if revision < front.Revision20260728 {
		return true
	}
	p.mu.Lock()
	if p.said.holds(digest) {
		defer p.mu.Unlock()
		return p.said.sessions
	}
	if p.asking == nil {
		p.asking = &question{answered: make(chan struct{})}
		go p.ask(context.WithoutCancel(ctx), p.asking, digest)
	}
	asking := p.asking
	p.mu.Unlock()
	select {
	case <-asking.answered:
		return asking.sessions
	case <-ctx.Done():
		return true // nobody is there to be told
	}
}

// ask asks the server. It lasts no longer than askTimeout, whoever waits for it.
func (p *proxyEras) ask(ctx context.Context, into *question, digest string) {
	defer close(into.answered)
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	sessions, certain, err := p.legacy.Sessions(ctx, nil)
	said := opinion{of: digest, sessions: sessions || err != nil}
	if !certain {
		said.until = time.Now().Add(askAgain)
	}
	log := p.adapter.config.Log
	switch {
	case err != nil:
		log.V(1).Info("The server does not say whether it has sessions; clients ask it themselves", "error", err.Error())
	case !sessions:
		log.Info("The server has no sessions; clients that need one are translated", "certain", certain)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	into.sessions = said.sessions
	p.said, p.asking = said, nil
}

// initialize opens sessions for clients of a server that has none.
func (p *proxyEras) initialize(w http.ResponseWriter, r *edge.Request) bool {
	if p.hasSessions(r.Context()) {
		return false
	}
	p.translated.Serve(w, r)
	return true
}

// translate answers clients without sessions of a server that has only such.
func (p *proxyEras) translate(w http.ResponseWriter, r *edge.Request) bool {
	if !p.isLegacy(r.Context()) {
		return false
	}
	p.adapter.serveStateless(w, r)
	return true
}

// route sends what belongs to a session of ours there, and all else to the proxy.
func (p *proxyEras) route(proxy *upstream.Proxy) edge.Route {
	ours := func(r *edge.Request) bool {
		_, ok := p.adapter.sessions.Find(r.Head(front.HeaderSession)).(*session.Session)
		return ok
	}
	route := proxy.Route()
	route.Check = func(w http.ResponseWriter, r *edge.Request) bool {
		if ours(r) {
			return p.translated.Check(w, r)
		}
		return proxy.Check(w, r)
	}
	route.Serve = func(w http.ResponseWriter, r *edge.Request) {
		if ours(r) {
			p.translated.Serve(w, r)
			return
		}
		proxy.Serve(w, r)
	}
	return route
}

// open opens sessions for clients of another transport than the server's, and for those
// of a server that has none.
func (p *proxyEras) open(ctx context.Context, from *caller.Caller) (*session.Session, error) {
	if !p.hasSessions(ctx) {
		return p.openTranslated(from), nil
	}
	connection, err := p.dialLegacy(ctx, from)
	if err != nil {
		return nil, err
	}
	return p.adapter.openAt(connection), nil
}

// openAt opens a session over a connection to a server that checks tokens itself.
func (a *Adapter) openAt(connection mux.Server) *session.Session {
	noting := &accepting{Server: connection}
	opened := session.New(noting, a.sessionLimits(), &a.metrics)
	noting.session, opened.ServerChecks = opened, true
	connection.Serve(opened.Deliver, opened.End)
	return opened
}

// openTranslated opens a session that the server knows nothing of. What its client shows
// may change from one request to the next, as tokens expire.
func (p *proxyEras) openTranslated(from *caller.Caller) *session.Session {
	last := &atomic.Pointer[caller.Caller]{}
	last.Store(from.Lasting())
	server := p.adapter.newForLegacy(last)
	noting := &accepting{Server: server, last: last}
	opened := session.New(noting, p.adapter.sessionLimits(), &p.adapter.metrics)
	noting.session, opened.ServerChecks = opened, true
	server.Serve(takeOver(opened), opened.End)
	return opened
}

// accepting notes which tokens the server has accepted in a session.
type accepting struct {
	session.Server
	session *session.Session
	last    *atomic.Pointer[caller.Caller] // is set to the caller that was let in last; may be nil
}

func (s *accepting) Send(ctx context.Context, message session.Message) error {
	from := message.From
	if owner := s.session.Owner; owner != nil && from != nil { // it has none while it is being opened
		from = from.Clone()
		from.Accepted = func() {
			owner.Accepted(from)
			if s.last != nil {
				s.last.Store(from.Lasting())
			}
		}
	}
	message.From = from
	return s.Server.Send(ctx, message)
}
