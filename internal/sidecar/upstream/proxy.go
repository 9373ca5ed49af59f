package upstream

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Limits bound what a Proxy does at a time, and for how long. The zero value of a
// field is not a default.
type Limits struct {
	Calls   int // POST requests in flight in one session
	Streams int // GET requests in flight in one session
	Single  int // POST requests in flight that belong to no session
	Listens int // streams in flight that belong to none

	AnswerBytes int64 // largest answer to initialize

	IdleTimeout  time.Duration // of a session that nobody uses
	MaxLifetime  time.Duration // of a session, and of a stream that belongs to none
	OpenTimeout  time.Duration // for the server to answer initialize
	CallTimeout  time.Duration // of one POST, whatever it reports
	WriteTimeout time.Duration // for a client to read what it is sent
	KeepAlive    time.Duration // between comments on a silent stream
}

// Metrics count what went wrong.
type Metrics struct {
	Refused     session.Counter // requests beyond a limit
	Unavailable session.Counter // requests that found no server at its port
	Broken      session.Counter // requests that the server failed to answer, or to its end
	Timeouts    session.Counter // calls that took longer than they may
	Forgotten   session.Counter // sessions that the server no longer knew
}

// Options are what a Proxy needs and how it behaves.
type Options struct {
	URL    *url.URL      // of the server's endpoint, such as http://127.0.0.1:3000/mcp
	MintID func() string // makes the id of a session that was opened
	Places *places.Places
	// Ended remembers why sessions ended.
	Ended *session.Endings
	// Translate answers a message that belongs to no session in the server's place, or
	// says that the server is to answer it; may be nil.
	Translate func(w http.ResponseWriter, r *edge.Request) bool
	// Initialize opens a session in the server's place, or says that the server is to; may
	// be nil.
	Initialize func(w http.ResponseWriter, r *edge.Request) bool
	// Opened is told of each session that is opened, with the context of the request and the
	// revision that was agreed on. It returns the session's number in the log, and what is told of its end. It may be nil.
	Opened func(ctx context.Context, revision string) (number string, ended func(reason error))
	Limits
}

// Proxy is the MCP endpoint of a server that speaks Streamable HTTP.
//
// A session has two ids: the client's, which is minted here, and the server's.
// Only the former ever reaches a client, and nothing that a client says is taken
// for the latter. A server that assigns no ids gets requests that belong to no
// session; so it does from clients of the stateless protocol revisions, whose
// requests it answers if it speaks them.
type Proxy struct {
	Options
	Metrics Metrics

	server  *server
	table   *table
	ending  chan struct{} // bounds how many sessions are ended at a time
	outage  atomic.Int64  // when the server was last seen to be away, in Unix nanoseconds
	streams atomic.Bool   // the server is known to answer GET with a stream
}

// NewProxy returns a Proxy.
func NewProxy(options Options) *Proxy {
	return &Proxy{
		Options: options,
		server:  newServer(options.URL), table: newTable(options.Limits, options.Places),
		ending: make(chan struct{}, endingAtATime),
	}
}

// Sessions is the number of sessions.
func (p *Proxy) Sessions() int { return p.table.len() }

// Single is the number of requests in flight that belong to no session.
func (p *Proxy) Single() int {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	return p.table.single + p.table.listens
}

// Reach says whether the server's port accepts connections.
func (p *Proxy) Reach(ctx context.Context) error {
	err := p.server.check(ctx)
	if err != nil && ctx.Err() == nil {
		p.noteOutage()
	}
	return err
}

// noteOutage remembers that sessions may have been lost.
func (p *Proxy) noteOutage() { p.outage.Store(time.Now().UnixNano()) }

// Route is the proxy's place at the edge.
func (p *Proxy) Route() edge.Route {
	return edge.Route{Methods: frontend.Methods, Check: p.Check, Serve: p.Serve}
}

// Check refuses what the head of a request makes no sense of.
func (p *Proxy) Check(w http.ResponseWriter, r *edge.Request) bool {
	r.Record.Front = edge.HTTPServer
	for _, name := range []string{frontend.HeaderSession, frontend.HeaderRevision, frontend.HeaderLastEventID} {
		if len(r.Header.Values(name)) > 1 {
			frontend.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, "the "+name+" header stands more than once")
			return false
		}
	}
	return frontend.TakesMethod(w, r.Request)
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

// pass forwards a request in the session that it names, if it names one.
func (p *Proxy) pass(x *exchange) {
	id := x.r.Header.Get(frontend.HeaderSession)
	if id == "" {
		p.passSingle(x)
		return
	}
	entered, err := p.table.enter(id, &x.r.Caller, x.stream, useOf(x))
	switch {
	case err == nil:
	case errors.Is(err, errUnknown):
		p.gone(x.w, x.r)
		return
	case errors.Is(err, session.ErrTooManyStreams):
		p.Metrics.Refused.Inc()
		frontend.Refuse(x.w, http.StatusConflict, nil, rpc.CodeInvalidRequest, err.Error())
		return
	default:
		x.turnAway(err)
		return
	}
	defer p.table.leave(entered, x.stream)
	x.session = entered
	x.r.Record.Session, x.r.Record.Revision = entered.number, edge.KnownRevision(entered.revision)
	x.run()
}

// useOf is what a request does with its session.
func useOf(x *exchange) places.Use {
	switch messages := x.r.Messages; {
	case x.stream:
		return places.Opened
	case len(messages) == 1:
		return places.UseOf(string(messages[0].Envelope.Method))
	}
	return places.Worked
}

// occupant is a session that has a place.
type occupant struct {
	proxy *Proxy
	entry *entry
}

// Idle is that of places.Occupant.
func (o occupant) Idle() (since time.Time, use places.Use, idle bool) {
	return o.proxy.table.idle(o.entry)
}

// Yield is that of places.Occupant. The server is told later.
func (o occupant) Yield(since time.Time) bool {
	e := o.entry
	if !o.proxy.table.removeIf(e, func() bool { return e.isIdle() && e.touched.Equal(since) }) {
		return false
	}
	go o.proxy.endSessions(context.Background(), []ending{{e, session.ErrYielded}})
	return true
}

// passSingle forwards a request that belongs to no session.
func (p *Proxy) passSingle(x *exchange) {
	leave, err := p.table.enterSingle(x.stream, x.r.Caller.Probe)
	if err != nil {
		x.turnAway(err)
		return
	}
	defer leave()
	x.run()
}

// delete ends a session. It is over here even if the server does not end its own.
func (p *Proxy) delete(w http.ResponseWriter, r *edge.Request) {
	id := r.Header.Get(frontend.HeaderSession)
	if id == "" {
		frontend.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, "the "+frontend.HeaderSession+" header is missing")
		return
	}
	// The session ends whatever the server says, so the server must have let the caller in.
	found, ok := p.table.find(id)
	if !ok || !found.owner.IsVerified(&r.Caller) || !p.table.remove(found) {
		p.gone(w, r)
		return
	}
	r.Record.Session, r.Record.Revision = found.number, edge.KnownRevision(found.revision)
	p.endSession(r.Context(), ending{found, session.ErrClient}, forwarded(r))
	w.WriteHeader(http.StatusNoContent)
}

// sweepInterval is how exactly time-outs are kept.
const sweepInterval = time.Second

// Run ends sessions whose time is up, until the context ends.
func (p *Proxy) Run(ctx context.Context) {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			p.endSessions(ctx, p.table.expire(now))
		}
	}
}

// Refuse takes no new sessions, and no requests without one, from now on.
func (p *Proxy) Refuse() {
	p.Places.Close(session.ErrDraining)
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	p.table.draining = true
}

// Drain takes no new sessions and waits until calls in flight have been answered,
// or the context ends; then it ends every session, at the server too. A session
// without a call ends at once, with its streams.
func (p *Proxy) Drain(ctx context.Context) {
	endings, busy := p.table.drain(false)
	p.table.endDrain(session.ErrDraining)
	p.endSessions(ctx, endings)
	for busy {
		all := false
		select {
		case <-p.table.changed:
		case <-ctx.Done():
			all = true
		}
		endings, busy = p.table.drain(all)
		p.endSessions(ctx, endings)
		if all {
			p.table.endStop(session.ErrDraining)
			return
		}
	}
}

const (
	endingAtATime = 16
	endTimeout    = 2 * time.Second
)

// endSessions ends sessions that were taken out of the table, and waits for that.
func (p *Proxy) endSessions(ctx context.Context, endings []ending) {
	var running sync.WaitGroup
	for _, e := range endings {
		p.ending <- struct{}{}
		running.Go(func() {
			defer func() { <-p.ending }()
			p.endSession(ctx, e, http.Header{})
		})
	}
	running.Wait()
}

// note has the client of a session that was taken out of the table learn why.
func (p *Proxy) note(e *entry, reason error) { p.Ended.Add(e.id, e.owner, reason) }

// endSession tells the server first, so that it can end streams in its own way.
func (p *Proxy) endSession(ctx context.Context, e ending, header http.Header) {
	p.note(e.entry, e.reason)
	defer e.entry.end(e.reason)
	p.tell(ctx, http.MethodDelete, e.entry, header, nil)
}

// tell sends the server something that nobody waits for the answer to.
func (p *Proxy) tell(ctx context.Context, method string, about *entry, header http.Header, body []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	request := newRequest(ctx, method, p.URL, body)
	request.Header = header
	if about != nil {
		header.Set(frontend.HeaderSession, about.serverID)
		if about.revision != "" && header.Get(frontend.HeaderRevision) == "" {
			header.Set(frontend.HeaderRevision, about.revision)
		}
	}
	if body != nil {
		header.Set("Content-Type", frontend.TypeJSON)
		header.Set("Accept", acceptBoth)
	}
	if response, err := p.server.send(request); err == nil {
		discard(response)
	}
}
