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
	errTimeout    = errors.New("time is up")
)

// exchange is one request that is forwarded, with its answer.
type exchange struct {
	proxy   *Proxy
	w       http.ResponseWriter
	r       *edge.Request
	message message       // of a POST
	session *proxySession // nil if it belongs to none
	stream  bool          // the answer is a stream that nobody expects to end
	timeout time.Duration
}

// run forwards the request and its answer.
func (x *exchange) run() {
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
	x.relay(ctx, cancel, response)
}

// context is what the exchange with the server lives in. It ends with its time,
// with its session, or when the instance drains and it is a stream.
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

// turnAway answers a request that there is no place for now.
func (x *exchange) turnAway(err error) {
	if !errors.Is(err, fault.ErrDraining) && !errors.Is(err, context.Canceled) {
		x.proxy.Metrics.Refused.Inc()
	}
	front.RefuseSession(x.w, x.r.Request, x.message.id, err)
}

func (x *exchange) send(ctx context.Context) (*http.Response, error) {
	request := remote.NewRequest(ctx, x.r.Method, x.proxy.URL, x.message.body)
	if x.r.URL.RawQuery != "" {
		target := *request.URL
		target.RawQuery = x.r.URL.RawQuery
		request.URL = &target
	}
	request.Header = forwarded(x.r)
	if x.session != nil {
		request.Header.Set(front.HeaderSession, x.session.serverID)
	}
	return x.proxy.server.Send(request)
}

// sessionForgotten answers for a server that does not know the session any more,
// so that the client begins again, and says whether it did.
//
// Servers say so by 404. Some say 400: that is believed of those that have been
// away since they last knew the session.
func (x *exchange) sessionForgotten(status int) bool {
	p, s := x.proxy, x.session
	if s == nil {
		return false
	}
	switch {
	case status < http.StatusMultipleChoices:
		s.confirm()
		s.Owner.Claim(&x.r.Caller)
		if x.stream {
			p.streams.Store(true)
		}
		return false
	case status == http.StatusNotFound && x.stream && !p.streams.Load():
		// Many servers have no GET at all and do not know that they should say 405
		// (R35). If the session is gone the next POST will tell.
		x.w.Header().Set("Allow", "POST, DELETE")
		front.Refuse(x.w, http.StatusMethodNotAllowed, nil, rpc.CodeInvalidRequest, "the server offers no stream")
		return true
	case status == http.StatusNotFound,
		status == http.StatusBadRequest && s.confirmedBefore(time.Unix(0, p.outage.Load())):
		if s.Owner.IsVerified(&x.r.Caller) { // else it may be only this caller that the server does not let in
			p.forget(s)
		}
		p.gone(x.w, x.r)
		return true
	}
	return false
}

func (p *Proxy) forget(s *proxySession) {
	if s.finish(errForgotten, always) {
		p.Metrics.Forgotten.Inc()
		s.cut(errForgotten)
	}
}

// endStray ends a session that the server opened though nobody asked for one, and
// whose id the client will not learn.
func (x *exchange) endStray(ctx context.Context, serverID string) {
	if remote.IsHeaderValue(serverID) {
		x.proxy.tell(ctx, http.MethodDelete, &proxySession{serverID: serverID}, http.Header{}, nil)
	}
}

// fail answers a request that the server did not.
func (x *exchange) fail(ctx context.Context, err error) {
	p := x.proxy
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errClientGone):
		return // nobody is there to be told
	case errors.Is(cause, errTimeout):
		x.timedOut(ctx)
		x.failInBand("the call took longer than " + x.timeout.String())
	case cause != nil:
		x.failInBand(cause.Error())
	case remote.IsDown(err):
		p.noteOutage()
		p.Metrics.Unavailable.Inc()
		front.Unavailable(x.w, x.message.id, "the server does not accept connections: "+err.Error())
	case errors.Is(err, remote.ErrUnusable):
		p.Metrics.Broken.Inc()
		front.Refuse(x.w, http.StatusBadGateway, x.message.id, rpc.CodeInternal, err.Error())
	default:
		p.noteOutage()
		p.Metrics.Broken.Inc()
		front.Refuse(x.w, http.StatusBadGateway, x.message.id, rpc.CodeInternal, "the server did not answer: "+err.Error())
	}
}

// failInBand answers a call as the server could have; there is nothing wrong with
// the HTTP of it (T-09).
func (x *exchange) failInBand(text string) {
	if x.message.id == nil {
		front.Unavailable(x.w, nil, text)
		return
	}
	front.Refuse(x.w, http.StatusOK, x.message.id, rpc.CodeInternal, text)
}

// timedOut tells the server, so that it can stop: in revisions with sessions a
// connection that ends cancels nothing.
func (x *exchange) timedOut(ctx context.Context) {
	x.proxy.Metrics.Timeouts.Inc()
	x.r.Record.Answered(edge.Timeout)
	if x.session == nil || x.message.id == nil {
		return
	}
	x.proxy.tell(ctx, http.MethodPost, x.session, http.Header{}, rpc.AppendCancelled(nil, x.message.id, "timeout"))
}
