package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/streamable"
	"github.com/slipway-mcp/slipway/internal/sidecar/handle"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// Limits bound how much a Proxy does at a time, and for how long. The zero value of a field is not a
// default.
type Limits struct {
	Calls   int // POST requests in flight in one session
	Streams int // GET requests in flight in one session
	Single  int // POST requests in flight that belong to no session
	Listens int // streams in flight that belong to none

	AnswerBytes  int64 // largest answer to initialize
	MessageBytes int   // largest message that the proxy reads to filter it, or to bind handles

	MaxLifetime  time.Duration // of a stream
	OpenTimeout  time.Duration // for the server to answer initialize
	CallTimeout  time.Duration // of one POST, whatever it reports
	WriteTimeout time.Duration // for a client to read what it is sent
	KeepAlive    time.Duration // between comments on a silent stream
}

// Metrics count failures.
type Metrics struct {
	Refused     session.Counter // requests beyond a limit
	Unavailable session.Counter // requests that found no server at its port
	Broken      session.Counter // requests that the server failed to answer, or to its end
	Timeouts    session.Counter // calls that took too long
	Forgotten   session.Counter // sessions that the server no longer knew
}

// Options say which server a Proxy is for, and how it behaves.
type Options struct {
	URL    *url.URL      // of the server's endpoint, such as http://127.0.0.1:3000/mcp
	MintID func() string // makes the id of a session that was opened, and that ends with the adapter
	// Keeper makes the ids of sessions that outlive the adapter; nil if none do.
	Keeper Keeper
	Owner  sessionid.Owner // this pod, which has the sessions
	Number func() string   // makes its number in the log
	// Sessions has the server's sessions, and may have others.
	Sessions *session.Registry
	// Translate answers a message that belongs to no session in the server's place. It returns
	// false if the server is to answer it; may be nil.
	Translate func(w http.ResponseWriter, r *edge.Request) bool
	// Initialize opens a session in the server's place. It returns false if the server is to open
	// it; may be nil.
	Initialize func(w http.ResponseWriter, r *edge.Request) bool
	// Handles belong to the callers that got them from the server.
	Handles *handle.Binder
	// Memory has room for the messages that the proxy reads; nil is no limit.
	Memory *budget.Budget
	Limits
}

// Proxy is the MCP endpoint of a server that speaks Streamable HTTP.
//
// A session has two ids: the adapter's and the server's. Clients see only the former, and the server
// only the latter. A server that gives no ids gets requests that belong to no session. Clients of
// stateless revisions send such requests, too.
type Proxy struct {
	Options
	Metrics Metrics

	server  *remote.Endpoint
	ending  chan struct{} // bounds how many sessions are ended at a time
	outage  atomic.Int64  // when the server was last seen to be away, in Unix nanoseconds
	streams atomic.Bool   // the server is known to answer GET with a stream
	former  *former

	// Requests in flight that belong to no session.
	single, listens, probes atomic.Int64
}

// New returns a Proxy.
func New(options Options) *Proxy {
	return &Proxy{
		Options: options, server: remote.NewEndpoint(options.URL), ending: make(chan struct{}, endingAtATime), former: newFormer(),
	}
}

// InFlight is the number of requests in flight that belong to no session, without those of the probe.
func (p *Proxy) InFlight() int { return int(p.single.Load() + p.listens.Load()) }

// Reach says whether the server's port accepts connections.
func (p *Proxy) Reach(ctx context.Context) error {
	err := p.server.Check(ctx)
	if err != nil && ctx.Err() == nil {
		p.noteOutage()
	}
	return err
}

// noteOutage remembers that the server may have lost its sessions.
func (p *Proxy) noteOutage() { p.outage.Store(time.Now().UnixNano()) }

// Route is the route of the proxy at the edge.
func (p *Proxy) Route() edge.Route {
	return edge.Route{Methods: front.Methods, Missing: p.missing, Check: p.Check, Serve: p.Serve}
}

func (p *Proxy) missing(r *edge.Request) string { return p.Sessions.Missing(front.SessionOf(r.Header)) }

// Check refuses a request by its head. A POST that names an unknown session passes only if it may be
// an initialize.
func (p *Proxy) Check(w http.ResponseWriter, r *edge.Request) bool {
	r.Record.Front = edge.HTTPServer
	if !front.NamesOnce(w, r.Request, nil) || !front.TakesMethod(w, r.Request) {
		return false
	}
	name := r.Head(front.HeaderSession)
	if r.Method != http.MethodPost || name == "" || r.Head(front.HeaderRevision) == front.Revision20260728 {
		return true
	}
	found, ok := p.Sessions.Find(name).(*proxySession)
	if ok && found.admits(&r.Caller) || streamable.MayInitialize(r) || !ok && p.comesBack(r, name) {
		return true
	}
	noteForeign(r, found)
	p.gone(w, r)
	return false
}

// Serve answers a request that Check has let pass.
func (p *Proxy) Serve(w http.ResponseWriter, r *edge.Request) {
	r.Record.Front = edge.HTTPServer
	switch r.Method {
	case http.MethodPost:
		p.post(w, r)
	case http.MethodGet:
		p.pass(&exchange{proxy: p, w: w, r: r, stream: true, timeout: p.MaxLifetime})
	default:
		p.delete(w, r)
	}
}

// pass forwards a request in the session that it names, or else in none.
func (p *Proxy) pass(x *exchange) {
	id := x.r.Header.Get(front.HeaderSession)
	if id == "" {
		p.passSingle(x)
		return
	}
	entered, err := p.find(x.r, id)
	if err == nil {
		err = entered.enter(&x.r.Caller, x.stream, useOf(x))
	}
	switch {
	case err == nil:
	case errors.Is(err, errUnknown):
		noteForeign(x.r, entered)
		p.gone(x.w, x.r)
		return
	case errors.Is(err, session.ErrTooManyStreams):
		p.Metrics.Refused.Inc()
		front.Refuse(x.w, http.StatusConflict, nil, rpc.CodeInvalidRequest, err.Error())
		return
	default:
		x.turnAway(err)
		return
	}
	defer entered.leave(x.stream)
	entered.note(x.r.Messages)
	x.session = entered
	x.r.Record.Session, x.r.Record.Revision = entered.Number, edge.KnownRevision(entered.Revision)
	x.run()
}

// useOf is how a request uses its session.
func useOf(x *exchange) places.Use {
	switch messages := x.r.Messages; {
	case x.stream:
		return places.Opened
	case len(messages) == 1:
		return places.UseOf(string(messages[0].Envelope.Method))
	}
	return places.Worked
}

// probeSingles are the requests of a probe that may be in flight without a session. A probe makes
// them one after the other, and may listen meanwhile.
const probeSingles = 4

var errTooManyRequests = fault.Busy("too many requests are in flight")

// passSingle forwards a request that belongs to no session. Streams do not take the places of calls,
// because clients keep them open.
func (p *Proxy) passSingle(x *exchange) {
	switch err := p.Sessions.Enter(); {
	case err == nil:
		defer p.Sessions.Leave()
	case !x.continues(): // no other pod can go on with what was begun here
		x.turnAway(err)
		return
	}
	count, limit := &p.single, p.Single
	switch {
	case x.r.Caller.Probe:
		count, limit = &p.probes, probeSingles
	case x.stream:
		count, limit = &p.listens, p.Listens
	}
	if count.Add(1) > int64(limit) {
		count.Add(-1)
		x.turnAway(errTooManyRequests)
		return
	}
	defer count.Add(-1)
	x.run()
}

// delete ends a session. It ends in the adapter even if the server keeps its own.
func (p *Proxy) delete(w http.ResponseWriter, r *edge.Request) {
	id := r.Header.Get(front.HeaderSession)
	if id == "" {
		front.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, "the "+front.HeaderSession+" header is missing")
		return
	}
	// The session ends whatever the server answers, so the server must have accepted the caller.
	found, err := p.find(r, id)
	switch {
	case err != nil && !errors.Is(err, errUnknown):
		(&exchange{proxy: p, w: w, r: r}).turnAway(err)
		return
	case err != nil, !found.Owner.IsVerified(&r.Caller), !found.EndIf(session.ErrClient, always):
		noteForeign(r, found)
		p.gone(w, r)
		return
	}
	r.Record.Session, r.Record.Revision = found.Number, edge.KnownRevision(found.Revision)
	found.close(r.Context(), forwarded(r))
	w.WriteHeader(http.StatusNoContent)
}

// noteForeign records that the session is another caller's. It may be nil.
func noteForeign(r *edge.Request, found *proxySession) {
	if found != nil && !found.Owner.Is(&r.Caller) {
		r.NoteForeign()
	}
}

// tell sends a request about a session whose answer is of no use.
func (p *Proxy) tell(ctx context.Context, method string, about *proxySession, header http.Header, body []byte) {
	header.Set(front.HeaderSession, about.serverID)
	if remote.IsHeaderValue(about.Revision) && header.Get(front.HeaderRevision) == "" {
		header.Set(front.HeaderRevision, about.Revision)
	}
	if body != nil {
		header.Set("Content-Type", front.TypeJSON)
		header.Set("Accept", remote.AcceptBoth)
	}
	p.server.Tell(ctx, method, p.URL, header, body)
}

// gone answers that there is no such session. It names no request: clients of the Go SDK would take
// the error for that request's answer and keep the session.
func (p *Proxy) gone(w http.ResponseWriter, r *edge.Request) {
	text := p.Sessions.NoSuch(r.Header.Get(front.HeaderSession), &r.Caller)
	front.Refuse(w, http.StatusNotFound, nil, rpc.CodeInvalidRequest, text)
}
