// Package stateless is the front for clients of the stateless revision 2026-07-28: it checks
// the headers of their requests, and writes answers as JSON or as event streams. Package
// server/sessionless runs the requests.
package stateless

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/handle"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// CommitAfter is long: most clients ask for an answer without a stream, and it only has to
// come before proxies give up a silent request.
const CommitAfter = 10 * time.Second

// Options are how an Endpoint behaves.
type Options struct {
	// Server takes the requests, as a sessionless.Server does.
	Server interface {
		Serve(ctx context.Context, request session.Message, admission sessionless.Admission) (*sessionless.Call, error)
	}
	// Handles belong to the callers that got them from the server; nil binds none.
	Handles *handle.Binder
	// TranslateSetting is the user's name of the setting that has the Server translate.
	TranslateSetting string

	CallTimeout  time.Duration // for one call, progress or not
	CommitAfter  time.Duration // of silence, after which an answer becomes a stream
	WriteTimeout time.Duration // for a client to read what it is sent
	KeepAlive    time.Duration // between two signs of life on a silent stream
}

// Metrics are the counters of an Endpoint.
type Metrics struct {
	Refused      session.Counter // requests beyond a limit
	CallTimeouts session.Counter // calls that took longer than they may
}

// Endpoint answers messages of the stateless revision.
type Endpoint struct {
	options Options
	metrics Metrics
	timers  sync.Pool // of *time.Timer, which are stopped
}

// New returns an Endpoint.
func New(options Options) *Endpoint { return &Endpoint{options: options} }

// Metrics are the counters.
func (e *Endpoint) Metrics() *Metrics { return &e.metrics }

// Serve answers a request, or takes a notification, that names its protocol version
// itself. The edge has checked its origin, and that the client accepts the answer's types.
func (e *Endpoint) Serve(w http.ResponseWriter, r *edge.Request) {
	r.Record.Front = edge.Stateless
	message := &r.Messages[0]
	message.From = &r.Caller
	if message.Envelope.Kind != rpc.Request {
		// The revision has no notification that a server must see: a client cancels a request
		// by closing its connection (M-04).
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if !e.claims(r) {
		e.refuse(w, r, sessionless.ErrForeign)
		return
	}
	filter := r.Caller.Rights().ListFilter(message.Envelope.Method)
	c, err := e.options.Server.Serve(r.Context(), *message, (*admission)(r))
	if err != nil {
		e.refuse(w, r, err)
		return
	}
	r.Drop()
	e.reply(w, r, c, filter)
}

// claims reports whether all handles in a request are the caller's.
func (e *Endpoint) claims(r *edge.Request) bool {
	message := &r.Messages[0]
	return !e.options.Handles.Binds(&r.Caller) || e.options.Handles.Claim(&r.Caller, message.Bytes, &message.Envelope) == nil
}

// refuse answers a request that the server does not get.
func (e *Endpoint) refuse(w http.ResponseWriter, r *edge.Request, reason error) {
	request := &r.Messages[0]
	id := request.Envelope.ID.Of(request.Bytes)
	refused, isRefusal := errors.AsType[*refusal](reason)
	switch {
	case isRefusal:
		refused.write(w, id)
	case errors.Is(reason, sessionless.ErrForeign):
		r.NoteForeign()
		refuseForeign(request).write(w, id)
	case errors.Is(reason, sessionless.ErrSessionsOnly):
		refuseSessionsOnly(request, e.options.TranslateSetting).write(w, id)
	case errors.Is(reason, fault.ErrBusy):
		e.metrics.Refused.Inc()
		front.RefuseSession(w, r.Request, id, reason)
	case r.Context().Err() != nil:
		refuseEnded(w, r, id)
	default:
		if !fault.IsLimit(reason) {
			front.NoteFailure(w)
		}
		front.Unavailable(w, id, "the server does not take requests now: "+reason.Error())
	}
}

// refuseEnded answers a request without an answer whose context has ended: the client has gone, or another instance serves
// it from now on.
func refuseEnded(w http.ResponseWriter, r *edge.Request, id []byte) {
	if errors.Is(context.Cause(r.Context()), fault.ErrMoved) {
		front.Unavailable(w, id, fault.ErrMoved.Error())
	}
}

// admission checks a request that has passed the edge.
type admission edge.Request

// Admit is that of sessionless.Admission.
func (a *admission) Admit(ctx context.Context, tools sessionless.Tools) error {
	refused := check(ctx, a.Header, &a.Messages[0], tools)
	if refused == nil {
		return nil // and no error that holds a nil pointer
	}
	return refused
}
