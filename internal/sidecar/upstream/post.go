package upstream

import (
	"net/http"

	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
	"github.com/slipway-mcp/slipway/internal/sidecar/wire"
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
	x := &exchange{proxy: p, w: w, r: r, message: m, timeout: p.CallTimeout}
	switch {
	case m.single:
		if m.method == "subscriptions/listen" { // it is answered when nobody listens any more
			x.stream, x.timeout = true, p.MaxLifetime
		}
		p.passSingle(x)
	case m.initialize:
		p.initialize(x)
	default:
		p.pass(x)
	}
}

// What a batch must not have in it, because it would not be seen there.
// read checks the syntax of a body, so that nothing malformed reaches the server.
// What the revision of a session makes of a batch is for the server to say.
// Line breaks between tokens become blanks; nothing else changes.
func read(body []byte) (message, error) {
	m := message{body: body}
	if wire.IsBatch(body) {
		_, err := frontend.ScanBatch(body)
		return m, err
	}
	envelope, err := wire.Scan(body)
	if err != nil {
		return m, err
	}
	m.single = envelope.ProtocolVersion != nil
	if envelope.Kind == wire.Request {
		m.id, m.method = envelope.ID.Of(body), string(envelope.Method)
		m.initialize = m.method == "initialize" && !m.single
	}
	return m, nil
}
