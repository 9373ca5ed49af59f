package proxy

import (
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
)

// post forwards messages. The edge has scanned them, so nothing malformed reaches the server. The
// server decides whether the revision of a session allows a batch.
func (p *Proxy) post(w http.ResponseWriter, r *edge.Request) {
	x := p.newPost(w, r)
	switch {
	case !isStateless(r) && x.method == rpc.MethodInitialize:
		p.initialize(x)
	case !isStateless(r):
		p.pass(x)
	case p.Translate == nil || !p.Translate(w, r):
		p.passStateless(x)
	}
}

// ServeStateless forwards a message of a revision without sessions.
func (p *Proxy) ServeStateless(w http.ResponseWriter, r *edge.Request) {
	r.Record.Front = edge.HTTPServer
	p.passStateless(p.newPost(w, r))
}

// isStateless says whether a message is of a revision without sessions, 2026-07-28 or later.
func isStateless(r *edge.Request) bool {
	return !r.Batch && r.Messages[0].Envelope.ProtocolVersion != nil
}

func (p *Proxy) newPost(w http.ResponseWriter, r *edge.Request) *exchange {
	x := &exchange{proxy: p, w: w, r: r, body: r.Body, timeout: p.CallTimeout}
	if e := &r.Messages[0].Envelope; !r.Batch && e.Kind == rpc.Request {
		x.id, x.method = e.ID.Of(r.Body), string(e.Method)
	}
	return x
}

func (p *Proxy) passStateless(x *exchange) {
	if x.method == "subscriptions/listen" { // its answer comes when the client stops to listen
		x.stream, x.timeout = true, p.MaxLifetime
	}
	p.passSingle(x)
}
