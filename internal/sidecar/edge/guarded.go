package edge

import (
	"net/http"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// Guarded names callers, and decides on their messages, as the access document says.
type Guarded struct {
	Gate *access.Gate
	// IsProbe reports whether the manager sent a request; nil means that it sends none.
	IsProbe func(*http.Request) bool
	// Vouched returns the caller that another pod of the server has verified; nil if it has verified none. It
	// is nil at ports where clients can connect.
	Vouched func(*http.Request) *identity.Identity
	// Audit gets every decision; may be nil.
	Audit *Auditor
}

// Authenticate refuses a request without a valid token, if the server needs one. It looks at nothing but
// the headers and the query.
func (g *Guarded) Authenticate(r *http.Request) (caller.Caller, *Refusal) {
	if g.IsProbe != nil && g.IsProbe(r) {
		from := unverified(r, true)
		from.Grant = g.Gate.Probe()
		return from, nil
	}
	address := addressOf(r.RemoteAddr)
	grant, refusal := g.admit(r, access.Head{Authorization: r.Header["Authorization"], Host: r.Host, Query: r.URL.RawQuery, Client: address})
	switch {
	case refusal != nil:
		return caller.Caller{}, refusalOf(refusal)
	case grant.Identity == nil:
		from := unverified(r, false)
		from.Grant = grant
		return from, nil
	}
	return caller.Caller{
		Principal: caller.Principal(grant.Principal), Address: address, Trace: traceOf(r.Header), Grant: grant,
	}, nil
}

func (g *Guarded) admit(r *http.Request, head access.Head) (*access.Grant, *access.Refusal) {
	if g.Vouched != nil {
		if who := g.Vouched(r); who != nil {
			return g.Gate.AdmitVouched(who, head)
		}
	}
	return g.Gate.Admit(head)
}

func refusalOf(refusal *access.Refusal) *Refusal {
	header := http.Header{}
	if refusal.Challenge != "" {
		header.Set("WWW-Authenticate", refusal.Challenge)
	}
	if refusal.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(refusal.RetryAfter))
	}
	return &Refusal{
		Status: refusal.Status, Code: refusal.Code, Text: refusal.Text, Header: header, Reason: refusal.Reason, Delay: refusal.Delay, Close: refusal.Close,
	}
}

// Authorize asks the rules about every message. One message that they do not allow refuses all of a batch:
// the server gets nothing of it.
func (g *Guarded) Authorize(r *Request) (over func(), refused *Refusal) {
	for _, stage := range [...]func(*Request) *Refusal{g.again, contradicted, g.decide, g.Audit.reserve} {
		if refused := stage(r); refused != nil {
			return nil, refused
		}
	}
	if r.Caller.Grant == nil || r.Caller.Probe || !listens(r) {
		return nothing, nil
	}
	ctx, over := g.Gate.Listen(r.Context(), r.Caller.Grant)
	r.Request = r.WithContext(ctx)
	return over, nil
}

// again authenticates the caller once more if the rules have changed, or the token has expired, while the body
// came. A client that sends it slowly must not keep rights that it had when it began.
func (g *Guarded) again(r *Request) *Refusal {
	if r.Caller.Grant == nil || r.Caller.Probe || !g.Gate.IsOutdated(r.Caller.Grant) {
		return nil
	}
	from, refused := g.Authenticate(r.Request)
	if refused == nil {
		r.Caller = from
	}
	return refused
}

func (g *Guarded) decide(r *Request) *Refusal {
	rights := r.Caller.Rights()
	if rights == nil && !g.Audit.isOn() { // nearly all servers
		return nil
	}
	if len(r.Messages) == 0 && rights.None() { // it opens a stream, or ends a session
		return refusalOf(g.Gate.Forbid(&rules.Decision{Denied: rules.DeniedRule, Text: "no rule of this server names you"}, r.Host))
	}
	for i := range r.Messages {
		message := &r.Messages[i]
		decision := rights.Decide(message.Bytes, &message.Envelope)
		g.Audit.note(r, message, &decision)
		if decision.Denied != rules.Allowed {
			return refusalOf(g.Gate.Forbid(&decision, r.Host))
		}
	}
	return nil
}

// listens reports whether a request opens a stream that only listens.
func listens(r *Request) bool {
	if r.Method == http.MethodGet {
		return true
	}
	return len(r.Messages) == 1 && r.Messages[0].Envelope.Kind == rpc.Request && string(r.Messages[0].Envelope.Method) == subscription.MethodListen
}
