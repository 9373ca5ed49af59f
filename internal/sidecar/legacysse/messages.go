package legacysse

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/wire"
)

// ServeMessages takes what a client has to say to the server of its connection. It
// only ever acknowledges: answers arrive on the connection (E-04).
func (t *Transport) ServeMessages(w http.ResponseWriter, r *http.Request) {
	if !t.admit(w, r, http.MethodPost) {
		return
	}
	c, ok := t.find(w, r)
	if !ok {
		return
	}
	body, ok := t.readBody(w, r)
	if !ok {
		return
	}
	messages, err := c.scan(body)
	if err != nil {
		failScan(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), t.SendTimeout)
	defer cancel()
	if err := c.take(ctx, messages); err != nil {
		failTake(w, err)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// readBody reads a body that may be a message. If it is not it has answered.
func (t *Transport) readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mediaType != typeJSON {
		fail(w, http.StatusUnsupportedMediaType, wire.CodeInvalidRequest, "the Content-Type must be "+typeJSON)
		return nil, false
	}
	if r.ContentLength > t.BodyBytes {
		t.failTooLarge(w)
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, t.BodyBytes))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		t.failTooLarge(w)
		return nil, false
	}
	if err != nil {
		fail(w, http.StatusBadRequest, wire.CodeParse, "the body could not be read")
		return nil, false
	}
	return body, true
}

func (t *Transport) failTooLarge(w http.ResponseWriter) {
	// What is left of the body is not worth reading.
	w.Header().Set("Connection", "close")
	fail(w, http.StatusRequestEntityTooLarge, wire.CodeInvalidRequest,
		"the body is larger than "+strconv.FormatInt(t.BodyBytes, 10)+" bytes, the limit of this server")
}

// scan reads the envelopes of a message, or of those in an array: the transport's
// own revision has no arrays, but 2025-03-26, which may be agreed on all the same,
// does (J-10). Later ones do not.
func (c *connection) scan(body []byte) (messages []session.Message, err error) {
	one := func(message []byte) error {
		envelope, err := wire.Scan(message)
		if err != nil {
			return err
		}
		messages = append(messages, session.Message{Bytes: message, Envelope: envelope})
		return nil
	}
	if !wire.IsBatch(body) {
		return messages, one(body)
	}
	if agreed := c.revision(); agreed >= firstWithoutBatches {
		return nil, refused("batches are part of protocol revision 2025-03-26 only; this connection has " + agreed)
	}
	if err := wire.Batch(body, one); err != nil {
		return nil, err
	}
	for _, message := range messages {
		switch {
		case message.Envelope.ProtocolVersion != nil:
			return nil, refused(errStateless.Error())
		case isInitialize(message): // J-08
			return nil, refused("initialize must not be part of a batch")
		}
	}
	return messages, nil
}

// firstWithoutBatches is the revision since which there are none.
const firstWithoutBatches = "2025-06-18"

func refused(reason string) error {
	return &wire.Error{Code: wire.CodeInvalidRequest, Reason: reason}
}

func isInitialize(message session.Message) bool {
	return message.Envelope.Kind == wire.Request && string(message.Envelope.Method) == "initialize"
}

func failScan(w http.ResponseWriter, err error) {
	code := wire.CodeParse
	if refused, ok := errors.AsType[*wire.Error](err); ok {
		code = refused.Code
	}
	fail(w, http.StatusBadRequest, code, err.Error())
}

// errStateless refuses what is not a request of the stateless protocol, which is
// not served here. A request is answered.
var errStateless = errors.New("messages of the stateless protocol are not taken here; begin with initialize")

// failTake answers a message that did not reach its server.
func failTake(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, session.ErrEnded):
		failEnded(w)
	case errors.Is(err, session.ErrDuplicateID), errors.Is(err, errStateless):
		fail(w, http.StatusBadRequest, wire.CodeInvalidRequest, err.Error())
	case errors.Is(err, session.ErrTooManyCalls):
		unavailable(w, err.Error())
	default:
		unavailable(w, "the server does not take messages now: "+err.Error())
	}
}

// take hands messages to the server, those that want no answer first, unless they
// are for us to answer.
func (c *connection) take(ctx context.Context, messages []session.Message) error {
	if len(messages) == 1 {
		switch answer, err := c.refuse(messages[0]); {
		case err != nil:
			return err
		case answer != nil:
			return c.answer(ctx, answer)
		}
	}
	var requests []session.Message
	for _, message := range messages {
		if message.Envelope.Kind == wire.Request {
			requests = append(requests, message)
		} else if err := c.session.Tell(ctx, message); err != nil {
			return err
		}
	}
	if len(requests) == 0 {
		return nil
	}
	return c.session.CallOn(ctx, c.stream, requests...)
}

// What a client is told that speaks the stateless protocol, so that it falls back
// to one that is served (E-07, L-22).
const (
	codeUnsupportedRevision = -32022
	supportedRevisions      = `"2024-11-05","2025-03-26","2025-06-18","2025-11-25"`
)

// refuse returns the answer to a request that the server must not see, if it must
// not, or an error if it is none that could be answered.
func (c *connection) refuse(message session.Message) (answer []byte, err error) {
	e := &message.Envelope
	id := e.ID.Of(message.Bytes)
	switch {
	case e.ProtocolVersion != nil && e.Kind == wire.Request:
		data := []byte(`{"supported":[` + supportedRevisions + `],"requested":`)
		data = append(wire.AppendString(data, string(e.ProtocolVersion)), '}')
		return appendError(nil, id, codeUnsupportedRevision, "unsupported protocol version", data), nil
	case e.ProtocolVersion != nil:
		return nil, errStateless
	case isInitialize(message) && !c.begin(id):
		// Servers differ in what they make of a second one.
		return appendError(nil, id, wire.CodeInvalidRequest, "this connection has been initialized; connect again for another session", nil), nil
	}
	return nil, nil
}

// answer sends the client an answer of our own.
func (c *connection) answer(ctx context.Context, message []byte) error {
	select {
	case c.answers <- message:
		return nil
	case <-c.gone:
		return session.ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}
