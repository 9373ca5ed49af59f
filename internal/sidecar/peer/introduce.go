package peer

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
)

// introduces reports whether a request opens a new session, although it names one in its header. Clients that keep the
// id of a session that is over do so.
func introduces(r *edge.Request, body []byte) bool {
	if r.Method != http.MethodPost || r.Head(front.HeaderSession) == "" || !bytes.Contains(body, []byte(rpc.MethodInitialize)) {
		return false
	}
	message, err := rpc.Scan(bytes.Trim(body, " \t\r\n"))
	return err == nil && message.Kind == rpc.Request && message.ProtocolVersion == nil && string(message.Method) == rpc.MethodInitialize
}

// introduce asks the owner of the session that an initialize names. The owner refuses it if the session is open.
// introduce reports whether the session is over or its owner cannot be reached. The client then gets a new session
// like any other client, because that owner would not answer it. The client does not wait again for an owner that is
// known to be silent.
func (p *passage) introduce(ctx context.Context) bool {
	if !p.router.mayTry(p.owner.UID) {
		return true
	}
	w := &tentative{ResponseWriter: p.w, header: http.Header{}, drops: func(status int) bool { return status == http.StatusServiceUnavailable }}
	p.request.Header[headerPlace] = []string{placeNever}
	err := p.router.options.Relay.Forward(ctx, w, p.owner, &p.request)
	failed, dialed := errors.AsType[*relay.DialError](err)
	switch {
	case ctx.Err() != nil:
	case dialed:
		p.router.judge(p.owner, failed.Outcome, 1, p.returns)
		return true
	case w.dropped, errors.Is(err, relay.ErrLost):
		return true
	case err == nil:
		p.router.notes.answered(p.owner.UID)
	}
	p.finish(err)
	return false
}

// tentative is the answer to a request that opens a session. It drops one that says that the pod has not begun with
// it.
type tentative struct {
	http.ResponseWriter
	header  http.Header
	drops   func(status int) bool // decides by the header, too
	dropped bool
}

// Header implements http.ResponseWriter.
func (t *tentative) Header() http.Header { return t.header }

// WriteHeader implements http.ResponseWriter.
func (t *tentative) WriteHeader(status int) {
	if t.dropped = t.drops(status); !t.dropped {
		maps.Copy(t.ResponseWriter.Header(), t.header)
		t.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter. The relay has called WriteHeader before.
func (t *tentative) Write(b []byte) (int, error) {
	if t.dropped {
		return len(b), nil
	}
	return t.ResponseWriter.Write(b)
}

// FlushError is for http.ResponseController.
func (t *tentative) FlushError() error {
	if t.dropped {
		return nil
	}
	return http.NewResponseController(t.ResponseWriter).Flush()
}

// SetWriteDeadline is for http.ResponseController.
func (t *tentative) SetWriteDeadline(deadline time.Time) error {
	return http.NewResponseController(t.ResponseWriter).SetWriteDeadline(deadline)
}
