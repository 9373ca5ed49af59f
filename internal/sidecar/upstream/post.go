package upstream

import (
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

const revision20260728 = "2026-07-28"

// message is a body that was found to be one or more messages.
type message struct {
	body       []byte
	envelope   rpc.Envelope // of a single message
	id         []byte       // of a single request
	method     string       // of a single request
	single     bool         // it belongs to no session: revisions since 2026-07-28 have none
	initialize bool
}

func (p *Proxy) post(w http.ResponseWriter, r *http.Request) {
	body, refused := frontend.ReadBody(w, r, frontend.BodyLimits{BodyBytes: p.BodyBytes, ReadTimeout: p.ReadTimeout})
	if refused != nil {
		if refused.TooLarge() {
			p.Metrics.Refused.Inc()
		}
		refused.Refuse(w)
		return
	}
	m, err := read(body)
	if err != nil {
		frontend.RefuseScan(w, err)
		return
	}
	switch {
	case m.single && p.Translate != nil && p.Translate(w, r, session.Message{Bytes: body, Envelope: m.envelope}):
	case m.single:
		p.postSingle(w, r, m)
	case m.initialize:
		p.initialize(p.exchange(w, r, m))
	default:
		p.pass(p.exchange(w, r, m))
	}
}

func (p *Proxy) exchange(w http.ResponseWriter, r *http.Request, m message) *exchange {
	return &exchange{proxy: p, w: w, r: r, message: m, timeout: p.CallTimeout}
}

// postSingle forwards a message that belongs to no session.
func (p *Proxy) postSingle(w http.ResponseWriter, r *http.Request, m message) {
	x := p.exchange(w, r, m)
	if m.method == "subscriptions/listen" { // it is answered when nobody listens any more
		x.stream, x.timeout = true, p.MaxLifetime
	}
	p.passSingle(x)
}

// ServeStateless forwards a message of the stateless revision that was read already.
func (p *Proxy) ServeStateless(w http.ResponseWriter, r *http.Request, read session.Message) {
	p.postSingle(w, r, single(read.Bytes, read.Envelope))
}

// read checks the syntax of a body, so that nothing malformed reaches the server.
// What the revision of a session makes of a batch is for the server to say.
// Line breaks between tokens become blanks; nothing else changes.
func read(body []byte) (message, error) {
	m := message{body: body}
	if rpc.IsBatch(body) {
		_, err := frontend.ScanBatch(body)
		return m, err
	}
	envelope, err := rpc.Scan(body)
	if err != nil {
		return m, err
	}
	return single(body, envelope), nil
}

// single is a body that is one message.
func single(body []byte, envelope rpc.Envelope) message {
	m := message{body: body, envelope: envelope, single: envelope.ProtocolVersion != nil}
	if envelope.Kind == rpc.Request {
		m.id, m.method = envelope.ID.Of(body), string(envelope.Method)
		m.initialize = m.method == "initialize" && !m.single
	}
	return m
}
