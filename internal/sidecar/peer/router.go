package peer

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

const (
	// patience is how long a request waits for an owner that cannot be reached now. A stream waits longer: the
	// Go SDK gives a session up when its stream cannot be resumed.
	patience       = 5 * time.Second
	streamPatience = 10 * time.Second
	// between is the time between two attempts.
	between = 250 * time.Millisecond
	// retryAfter is what the header of that name says when the patience is over.
	retryAfter = "2"
)

// Options configure a Router.
type Options struct {
	// Self is this pod, at its peer port.
	Self sessionid.Owner
	// Parse returns the owner of a session, and whether the session outlives a restart of the owner's adapter; an error
	// if the id is none of this server.
	Parse func(id string) (owner sessionid.Owner, returns bool, err error)
	// State returns the pod that gave the client the state which a request without a session goes on with; false if
	// there is none.
	State func(r *edge.Request) (sessionid.Owner, bool)
	Relay *relay.Relay
	// Standing returns what the manager's list says of a pod.
	Standing func(pod [16]byte) roster.Standing
	// Ready returns the pods of the list that are ready; nil without a list that counts.
	Ready func() *roster.Ready
	// Next returns a channel that closes when another list comes.
	Next func() <-chan struct{}
	Log  logr.Logger
}

// Router passes requests on to the pods that have their sessions, or keep state for their callers. It is the edge.Locator
// of the port for clients.
type Router struct {
	options  Options
	notes    *notes
	verdicts verdicts
	watches  watches
	calls    calls
	homes    atomic.Pointer[listedHomes]
	listens  listens

	draining context.Context // ends streams
	drain    context.CancelFunc
}

// New returns a Router.
func New(options Options) *Router {
	t := &Router{options: options, notes: newNotes(), verdicts: verdicts{log: options.Log}}
	t.draining, t.drain = context.WithCancel(context.Background())
	return t
}

// Drain ends the streams that this pod passes on: clients resume them at another pod, and lose nothing.
func (t *Router) Drain() { t.drain() }

// Drained waits until all calls that this pod passes on have their answers, or the context ends.
func (t *Router) Drained(ctx context.Context) {
	select {
	case <-t.calls.over():
	case <-ctx.Done():
	}
}

// BySession implements edge.Locator. It leaves a session that is over to this pod, which answers 404.
func (t *Router) BySession(w http.ResponseWriter, r *edge.Request, id string) bool {
	switch r.Method {
	case http.MethodPost, http.MethodGet, http.MethodDelete:
	default:
		return true // no pod takes it
	}
	owner, returns, elsewhere := t.locate(id, time.Now())
	if !elsewhere {
		return true
	}
	body, rest, refused := r.Carry(w)
	if refused != nil {
		refused.Write(w)
		return false
	}
	p := t.newPassage(w, r, owner, body)
	p.returns, p.request.Rest, p.request.ContentLength = returns, rest, r.ContentLength
	if r.Method == http.MethodGet {
		return p.stream()
	}
	if introduces(r, body) {
		t.calls.begin()
		defer t.calls.end()
		return p.introduce(r.Context())
	}
	return p.call()
}

// untilDrain returns a context that ends with the streams that this pod passes on.
func (t *Router) untilDrain(ctx context.Context) (of context.Context, leave func()) {
	of, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(t.draining, cancel)
	return of, func() {
		stop()
		cancel()
	}
}

// locate returns the pod that a request in a session goes to, and whether the session outlives a restart of its adapter. This pod answers requests with ids of no pod, and those
// whose pod cannot have the session, without a connection to any.
func (t *Router) locate(id string, now time.Time) (owner sessionid.Owner, returns, elsewhere bool) {
	owner, returns, err := t.options.Parse(id)
	if err != nil || t.isServedHere(owner, now) {
		return sessionid.Owner{}, false, false
	}
	return owner, returns, true
}

// ByState implements edge.Locator. It leaves a state of a pod that has ended to this pod: a server may go on with it in any
// process. If only that pod had the call, no pod knows its state.
func (t *Router) ByState(w http.ResponseWriter, r *edge.Request) bool {
	if r.Batch || len(r.Messages) != 1 || r.Messages[0].Envelope.ProtocolVersion == nil {
		return true // sessions have their own pods
	}
	owner, ok := t.options.State(r)
	if !ok || t.isServedHere(owner, time.Now()) {
		return true
	}
	p := t.newPassage(w, r, owner, r.Body)
	p.what, p.id = "request", r.Messages[0].Envelope.ID.Of(r.Messages[0].Bytes)
	return p.call()
}

// isServedHere reports whether this pod answers requests for an owner: its own, those of one that takes none from other
// pods, and those of one that is gone.
func (t *Router) isServedHere(owner sessionid.Owner, now time.Time) bool {
	self := &t.options.Self
	return owner.UID == self.UID || owner.Address.Port() != self.Address.Port() || t.notes.isGone(owner.UID, t.options.Standing(owner.UID), now)
}

// passage is one request on its way to the owner of its session, of its state, or of the state of its group.
type passage struct {
	router  *Router
	w       http.ResponseWriter
	r       *edge.Request
	owner   sessionid.Owner
	request relay.Request
	returns bool    // the session outlives a restart of the owner's adapter
	moves   bool    // another pod takes the request if the owner cannot be reached
	what    string  // the owner has, for people
	id      []byte  // of a request without a session
	listen  *listen // nil unless the request is a subscription of a group
}

func (t *Router) newPassage(w http.ResponseWriter, r *edge.Request, owner sessionid.Owner, body []byte) *passage {
	return &passage{router: t, w: w, r: r, owner: owner, what: "session", request: relay.Request{
		Method: r.Method, Target: r.URL.RequestURI(), Host: r.Host, Header: outgoing(r.Header, r.RemoteAddr, &r.Caller),
		Body: body, Client: r.Caller.ShareKey(),
	}}
}

// call is run for a request that is no stream. A drain waits for its answer.
func (p *passage) call() bool {
	p.router.calls.begin()
	defer p.router.calls.end()
	p.request.Begun = p.begun
	return p.run(p.r.Context(), time.Now().Add(patience))
}

// run passes the request on, and tries to reach the owner until then. It reports whether the request is still to be
// answered, because the owner is over, or cannot be reached and another pod can take the request. No pod has got it then.
func (p *passage) run(ctx context.Context, until time.Time) bool {
	patient, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for attempt := 1; ; attempt++ {
		p.request.ConnectTimeout = max(time.Until(until), 1)
		err := p.router.options.Relay.Forward(ctx, p.w, p.owner, &p.request)
		if err == nil || errors.Is(err, relay.ErrCut) {
			p.router.notes.answered(p.owner.UID)
		}
		failed, dialed := errors.AsType[*relay.DialError](err)
		if !dialed {
			p.finish(err)
			return false
		}
		switch verdict := p.router.judge(p.owner, failed.Outcome, attempt, p.returns); {
		case verdict == over, p.moves && failed.Outcome == relay.Unreachable:
			return true
		case verdict != wait || !pause(patient):
			p.unavailable(failed)
			return false
		}
	}
}

// begun gives the body back: the answer may take hours, and the request is not sent again.
func (p *passage) begun() {
	p.request.Body, p.id = nil, nil
	p.r.Drop()
}

// mayTry reports whether to connect to a pod for a request that another pod can take. A pod that is silent costs each
// request a whole dial. The watch finds out when it answers again.
func (t *Router) mayTry(pod [16]byte) bool {
	now := time.Now()
	return !t.notes.isGone(pod, roster.Listed, now) && !t.notes.isSilent(pod, now)
}

// judge returns the verdict on an owner that could not be connected to, and logs it. A pod that may come back is watched
// from then on.
func (t *Router) judge(pod sessionid.Owner, outcome relay.Outcome, attempt int, returns bool) verdict {
	seen := knowledge{contact: contactOf(outcome), listing: t.options.Standing(pod.UID), returns: returns}
	known, verdict := t.notes.judge(pod.UID, seen, attempt, time.Now())
	t.tell(pod, &known, verdict)
	if verdict == wait {
		t.watch(pod, returns)
	}
	return verdict
}

// tell logs a verdict.
func (t *Router) tell(pod sessionid.Owner, known *knowledge, verdict verdict) {
	switch {
	case verdict == over && known.contact == stranger:
		t.verdicts.say(saysReplaced, pod, known.silence)
	case verdict == over:
		t.verdicts.say(saysDead, pod, known.silence)
	case verdict == wait && known.contact == unready:
		t.verdicts.say(saysStuck, pod, known.silence)
	case verdict == wait:
		t.verdicts.say(saysSilent, pod, known.silence)
	}
}

// contactOf is untried if a limit of this pod or of the request was reached, which says nothing of the other one.
func contactOf(outcome relay.Outcome) contact {
	switch outcome { //nolint:exhaustive // the others are not of dials
	case relay.Refused:
		return refused
	case relay.Stranger:
		return stranger
	case relay.Unreachable:
		return unreachable
	case relay.Unready:
		return unready
	default:
		return untried
	}
}

// pause waits before the next attempt. It returns false when the patience is over, or the client has gone.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(between)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// finish ends a request that the owner may have got.
func (p *passage) finish(err error) {
	switch {
	case err == nil:
	case errors.Is(err, relay.ErrLost) && p.r.Method == http.MethodGet:
		panic(http.ErrAbortHandler) // as in unavailable
	case errors.Is(err, relay.ErrLost):
		// In a session, without the id of a JSON-RPC request: the error is about this request, and says nothing about
		// the session. The next request finds out.
		front.Refuse(p.w, http.StatusBadGateway, p.id, rpc.CodeInternal, "the pod with this "+p.what+" did not answer; whether it has acted is not known")
	case errors.Is(err, relay.ErrMalformed):
		front.Refuse(p.w, http.StatusBadRequest, p.id, rpc.CodeInvalidRequest, "the request cannot be passed on to the pod with this "+p.what)
	case errors.Is(err, relay.ErrBody):
		p.r.NotRead(err).Write(p.w)
	default:
		// The client has gone, or must not take a part of the answer for the whole.
		panic(http.ErrAbortHandler)
	}
}

// unavailable answers a request whose owner may live and cannot be reached. A new connection of the client may
// reach a pod that can.
func (p *passage) unavailable(failed *relay.DialError) {
	if p.r.Context().Err() != nil || p.r.Method == http.MethodGet {
		// SDKs open a stream again whose connection broke. They take any answer for the end of the session.
		panic(http.ErrAbortHandler)
	}
	text := "the pod with this " + p.what + " cannot be reached now"
	if failed.Outcome == relay.Busy {
		text = "this pod passes on as many requests as it can"
	}
	p.w.Header().Set("Retry-After", retryAfter)
	p.w.Header().Set("Connection", "close")
	front.Refuse(p.w, http.StatusServiceUnavailable, p.id, rpc.CodeInternal, text)
}
