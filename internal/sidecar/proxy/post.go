package proxy

import (
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
)

const revision20260728 = "2026-07-28"

// message is a body that was found to be one or more messages.
type message struct {
	body       []byte
	id         []byte // of a single request
	method     string // of a single request
	single     bool   // it belongs to no session: revisions since 2026-07-28 have none
	initialize bool
}

// post forwards what the edge has scanned, so that nothing malformed reaches the server.
// What the revision of a session makes of a batch is for the server to say.
func (p *Proxy) post(w http.ResponseWriter, r *edge.Request) {
	m := messageIn(r)
	switch {
	case m.single && p.Translate != nil && p.Translate(w, r):
	case m.single:
		p.postSingle(w, r, m)
	case m.initialize:
		p.initialize(p.exchange(w, r, m))
	default:
		p.pass(p.exchange(w, r, m))
	}
}

func (p *Proxy) exchange(w http.ResponseWriter, r *edge.Request, m message) *exchange {
	return &exchange{proxy: p, w: w, r: r, message: m, timeout: p.CallTimeout}
}

// postSingle forwards a message that belongs to no session.
func (p *Proxy) postSingle(w http.ResponseWriter, r *edge.Request, m message) {
	x := p.exchange(w, r, m)
	if m.method == "subscriptions/listen" { // it is answered when nobody listens any more
		x.stream, x.timeout = true, p.MaxLifetime
	}
	p.passSingle(x)
}

// ServeStateless forwards a message of the stateless revision.
func (p *Proxy) ServeStateless(w http.ResponseWriter, r *edge.Request) {
	r.Record.Front = edge.HTTPServer
	p.postSingle(w, r, messageIn(r))
}

// messageIn is what a request carries.
func messageIn(r *edge.Request) message {
	if r.Batch {
		return message{body: r.Body}
	}
	envelope := &r.Messages[0].Envelope
	m := message{body: r.Body, single: envelope.ProtocolVersion != nil}
	if envelope.Kind == rpc.Request {
		m.id, m.method = envelope.ID.Of(r.Body), string(envelope.Method)
		m.initialize = m.method == "initialize" && !m.single
	}
	return m
}
