package proxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote"
)

var (
	errClientGone = errors.New("the client is gone")
	errTimeout    = errors.New("the time for the call is up")
)

// exchange is one request that the proxy forwards, with its answer.
type exchange struct {
	proxy   *Proxy
	w       http.ResponseWriter
	r       *edge.Request
	body    []byte        // of a POST
	id      []byte        // of a single request
	method  string        // of a single request
	session *proxySession // nil if it belongs to none
	stream  bool          // the answer is a stream without an end that the client waits for
	timeout time.Duration
	resumes string // the server's id of the event after which a verified caller resumes a stream
}

// run forwards the request and its answer.
func (x *exchange) run() {
	if !x.claims() {
		return
	}
	ctx, cancel := x.context()
	defer cancel(nil)
	defer context.AfterFunc(x.r.Context(), func() { cancel(errClientGone) })()
	response, err := x.send(ctx)
	if err != nil {
		x.fail(ctx, err)
		return
	}
	defer func() { _ = response.Body.Close() }()
	if x.sessionForgotten(response.StatusCode) {
		return
	}
	if response.Header.Get(front.HeaderSession) != "" && x.session == nil {
		x.endStray(ctx, response.Header.Get(front.HeaderSession))
	}
	x.answer(ctx, cancel, response)
}

// answer passes the server's answer on, as the caller may see it.
func (x *exchange) answer(ctx context.Context, cancel context.CancelCauseFunc, response *http.Response) {
	shown := x.filter(response.Header)
	if shown == nil && !x.binds() { // nearly always without verified callers
		if x.sealsStates() {
			x.sealStates(response)
		}
		x.relay(ctx, cancel, response)
		return
	}
	room := x.proxy.Memory.Account(nil)
	defer func() { room.Change(-int(room.Held())) }()
	if shown != nil {
		x.relayFiltered(ctx, cancel, response, shown, room)
		return
	}
	x.bindBody(response, room)
	x.relay(ctx, cancel, response)
}

// context is that of the exchange with the server. It ends when its time is up, with its session, or
// when the adapter drains and the answer is a stream.
func (x *exchange) context() (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(x.r.Context()))
	timer := time.AfterFunc(x.timeout, func() { cancel(errTimeout) })
	over := x.proxy.Sessions.Over()
	switch {
	case x.session != nil:
		over = x.session.over
	case x.stream:
		over = x.proxy.Sessions.Draining()
	}
	detach := context.AfterFunc(over, func() { cancel(context.Cause(over)) })
	return ctx, func(cause error) {
		timer.Stop()
		detach()
		cancel(cause)
	}
}

// turnAway answers a request that the adapter has no place for now.
func (x *exchange) turnAway(err error) {
	if !errors.Is(err, fault.ErrDraining) && !errors.Is(err, context.Canceled) {
		x.proxy.Metrics.Refused.Inc()
	}
	front.RefuseSession(x.w, x.r.Request, x.id, err)
}

func (x *exchange) send(ctx context.Context) (*http.Response, error) {
	request := remote.NewRequest(ctx, x.r.Method, x.proxy.URL, forwarded(x.r), x.body)
	if x.r.URL.RawQuery != "" {
		target := *request.URL
		target.RawQuery = x.r.URL.RawQuery
		request.URL = &target
	}
	if x.session != nil {
		request.Header.Set(front.HeaderSession, x.session.serverID)
	}
	x.resume(request.Header)
	return x.proxy.server.Send(request)
}

// sessionForgotten answers for a server that does not know the session any more, so that the client
// begins again. It says whether it did.
//
// Servers say so by 404. Some say 400. The proxy believes that only of a server that has been away
// since it last knew the session.
func (x *exchange) sessionForgotten(status int) bool {
	p, s := x.proxy, x.session
	if s == nil {
		return false
	}
	switch {
	case status < http.StatusMultipleChoices:
		s.confirmed.Store(time.Now().UnixNano())
		s.Owner.Claim(&x.r.Caller)
		if x.stream {
			p.streams.Store(true)
		}
		return false
	case status == http.StatusNotFound && x.stream && !p.streams.Load():
		// Many servers have no GET at all and do not know that they should say 405 (R35). If the
		// session is gone, the next POST will tell.
		x.w.Header().Set("Allow", "POST, DELETE")
		front.Refuse(x.w, http.StatusMethodNotAllowed, nil, rpc.CodeInvalidRequest, "the server offers no stream")
		return true
	case status == http.StatusNotFound,
		status == http.StatusBadRequest && s.confirmed.Load() < p.outage.Load():
		if s.Owner.IsVerified(&x.r.Caller) { // otherwise the server may refuse only this caller
			p.forget(s)
		}
		p.gone(x.w, x.r)
		return true
	}
	return false
}

func (p *Proxy) forget(s *proxySession) {
	if s.EndIf(errForgotten, always) {
		p.Metrics.Forgotten.Inc()
		s.cut(errForgotten)
	}
}

// endStray ends a session that the server opened though the client did not ask for one. The client
// does not learn its id.
func (x *exchange) endStray(ctx context.Context, serverID string) {
	if remote.IsHeaderValue(serverID) {
		x.proxy.tell(ctx, http.MethodDelete, &proxySession{serverID: serverID}, http.Header{}, nil)
	}
}

// fail answers a request that the server did not answer.
func (x *exchange) fail(ctx context.Context, err error) {
	p := x.proxy
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errClientGone):
		return // there is no client to tell
	case errors.Is(cause, errTimeout):
		x.timedOut(ctx)
		x.failInBand("the call took longer than " + x.timeout.String())
	case cause != nil:
		x.failInBand(cause.Error())
	case remote.IsDown(err):
		p.noteOutage()
		p.Metrics.Unavailable.Inc()
		front.Failed(x.w, x.id, "the server does not accept connections: "+err.Error())
	case errors.Is(err, remote.ErrUnusable):
		p.Metrics.Broken.Inc()
		front.NoteFailure(x.w)
		front.Refuse(x.w, http.StatusBadGateway, x.id, rpc.CodeInternal, err.Error())
	default:
		p.noteOutage()
		p.Metrics.Broken.Inc()
		front.NoteFailure(x.w)
		front.Refuse(x.w, http.StatusBadGateway, x.id, rpc.CodeInternal, "the server did not answer: "+err.Error())
	}
}

// failInBand answers a call as the server could have: by an error message, and not by an HTTP error
// (T-09).
func (x *exchange) failInBand(text string) {
	if x.id == nil {
		front.Unavailable(x.w, nil, text)
		return
	}
	front.Refuse(x.w, http.StatusOK, x.id, rpc.CodeInternal, text)
}

// timedOut tells the server, so that it can stop: in revisions with sessions, the end of a TCP
// connection cancels nothing.
func (x *exchange) timedOut(ctx context.Context) {
	x.proxy.Metrics.Timeouts.Inc()
	x.r.Record.Answered(edge.Timeout)
	if x.session == nil || x.id == nil {
		return
	}
	x.proxy.tell(ctx, http.MethodPost, x.session, http.Header{}, rpc.AppendCancelled(nil, x.id, "timeout"))
}
