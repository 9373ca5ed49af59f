package upstream

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

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
	body, ok := p.readBody(w, r)
	if !ok {
		return
	}
	m, err := read(body)
	if err != nil {
		code := wire.CodeParse
		if refused, ok := errors.AsType[*wire.Error](err); ok {
			code = refused.Code
		}
		refuse(w, http.StatusBadRequest, nil, code, err.Error())
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
var (
	errInitializeInBatch = &wire.Error{Code: wire.CodeInvalidRequest, Reason: "initialize must not be part of a batch"}
	errStatelessInBatch  = &wire.Error{Code: wire.CodeInvalidRequest, Reason: "messages of the stateless protocol must not be part of a batch"}
)

// read checks the syntax of a body, so that nothing malformed reaches the server.
// What the revision of a session makes of a batch is for the server to say.
// Line breaks between tokens become blanks; nothing else changes.
func read(body []byte) (message, error) {
	m := message{body: body}
	if wire.IsBatch(body) {
		return m, wire.Batch(body, func(element []byte) error {
			envelope, err := wire.Scan(element)
			switch {
			case err != nil:
				return err
			case envelope.ProtocolVersion != nil:
				return errStatelessInBatch
			case string(envelope.Method) == "initialize":
				return errInitializeInBatch
			}
			return nil
		})
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

// firstRead is how much room a body has before any of it has arrived: what a
// client announces takes no memory until it comes.
const firstRead = 64 << 10

// readBody reads a body that may be a message. If it is not it has answered.
func (p *Proxy) readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if encoding := r.Header.Get("Content-Encoding"); err != nil || mediaType != typeJSON || encoding != "" && encoding != "identity" {
		refuse(w, http.StatusUnsupportedMediaType, nil, wire.CodeInvalidRequest, "the Content-Type must be "+typeJSON+", without a Content-Encoding")
		return nil, false
	}
	if r.ContentLength > p.BodyBytes {
		p.refuseTooLarge(w)
		return nil, false
	}
	// A client that stops in the middle must not hold on to what it has sent. Not
	// every kind of connection has deadlines; then it does.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(p.CallTimeout))
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), firstRead)) + bytes.MinRead)
	// One byte more than may be is read, to tell a body of just that size from a
	// larger one.
	_, err = body.ReadFrom(io.LimitReader(r.Body, p.BodyBytes+1))
	_ = control.SetReadDeadline(time.Time{})
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, nil, wire.CodeParse, "the body could not be read")
		return nil, false
	case int64(body.Len()) > p.BodyBytes:
		p.refuseTooLarge(w)
		return nil, false
	}
	return body.Bytes(), true
}

func (p *Proxy) refuseTooLarge(w http.ResponseWriter) {
	p.Metrics.Refused.Inc()
	// What is left of the body is not worth reading.
	w.Header().Set("Connection", "close")
	refuse(w, http.StatusRequestEntityTooLarge, nil, wire.CodeInvalidRequest,
		"the body is larger than "+strconv.FormatInt(p.BodyBytes, 10)+" bytes, the limit of this server")
}
