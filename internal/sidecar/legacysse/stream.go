package legacysse

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// errGone is why a session ends whose client does not listen any more.
var errGone = fmt.Errorf("%w: it closed its connection", session.ErrClient)

// connection is one client that listens, and its session. Whatever the server says
// is on one stream, so that it arrives in the order in which it was said.
type connection struct {
	session *session.Session
	stream  *session.Stream
	records records
	answers chan []byte   // of our own
	gone    chan struct{} // closed when nobody writes any more

	initialize atomic.Pointer[string] // its id, when the server has been sent it
	agreed     atomic.Pointer[string] // the revision in the answer to it
}

// begin notes the id of initialize. It says whether it is the first.
func (c *connection) begin(id []byte) bool {
	text := string(id)
	return c.initialize.CompareAndSwap(nil, &text)
}

// note looks for the answer to initialize in what the client is about to be sent, so
// that it never knows more of what was agreed on than we do.
func (c *connection) note(message []byte) {
	id := c.initialize.Load()
	if id == nil || c.agreed.Load() != nil {
		return
	}
	envelope, err := rpc.Scan(message)
	if err != nil || envelope.Kind != rpc.Response || string(envelope.ID.Of(message)) != *id {
		return
	}
	var answer struct {
		Result struct {
			ProtocolVersion string `json:"protocolVersion"`
		} `json:"result"`
	}
	// An answer that makes no sense agrees on nothing, as an error does.
	_ = json.Unmarshal(message, &answer)
	c.agreed.Store(&answer.Result.ProtocolVersion)
}

// revision is the protocol revision that was agreed on; empty before that.
func (c *connection) revision() string {
	if agreed := c.agreed.Load(); agreed != nil {
		return *agreed
	}
	return ""
}

// serveStream opens a session and sends everything of it to the client, until one
// of the two goes (E-01, E-06).
func (t *Transport) serveStream(w http.ResponseWriter, r *edge.Request) {
	if !frontend.Accepts(r.Request, frontend.TypeEvents) {
		frontend.Refuse(w, http.StatusNotAcceptable, nil, rpc.CodeInvalidRequest, "the Accept header must allow "+frontend.TypeEvents)
		return
	}
	slot, err := t.Sessions.Reserve(r.Context(), &r.Caller)
	if err != nil {
		frontend.RefuseSession(w, r.Request, nil, err)
		return
	}
	defer slot.Release()
	opened, general, err := t.open(r.Context(), &r.Caller)
	if err != nil {
		frontend.Unavailable(w, nil, err.Error())
		return
	}
	defer opened.End(errGone)
	opened.Owner = caller.NewOwner(&r.Caller)
	r.Record.Session = opened.Number
	// The registry knows the session by a name that nobody is told, so that no
	// other transport leads to it.
	slot.Fill(r.Context(), rand.Text(), opened)

	defer general.Detach()
	c := &connection{session: opened, stream: general, answers: make(chan []byte), gone: make(chan struct{})}
	defer close(c.gone)
	defer c.records.cancel()
	token := t.MintToken()
	t.add(token, c)
	defer t.remove(token)
	t.write(w, r, c, t.PostTo+"?"+tokenParameter+"="+token)
}

// open starts a server and opens the stream of its session for what belongs to no
// call.
func (t *Transport) open(ctx context.Context, from *caller.Caller) (*session.Session, *session.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, t.OpenTimeout)
	defer cancel()
	opened, err := t.Open(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	general, err := opened.Open()
	if err != nil {
		opened.End(err)
		return nil, nil, err
	}
	return opened, general, nil
}

// write tells the client where to post, and then all that arrives for it.
func (t *Transport) write(w http.ResponseWriter, r *edge.Request, c *connection, postTo string) {
	header := w.Header()
	header.Set("Content-Type", frontend.TypeEvents)
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	out := writer{w: w, control: http.NewResponseController(w), timeout: t.WriteTimeout, stream: c.stream}
	out.buffer = append(out.buffer, "event: endpoint\ndata: "+postTo+"\n\n"...)
	timer := time.NewTimer(t.KeepAlive)
	defer timer.Stop()
	for out.flush() == nil {
		if end := out.gather(c); end {
			return
		}
		if len(out.buffer) > 0 {
			continue
		}
		timer.Reset(t.KeepAlive)
		select {
		case <-r.Context().Done():
			return
		case <-timer.C:
			out.buffer = append(out.buffer, rpc.KeepAlive...)
		case answer := <-c.answers:
			out.append(answer)
		case <-c.stream.Ready():
		}
	}
}

// writeSize is how much is written in one go, within one deadline.
const writeSize = 64 << 10

// writer sends events to a client. One that does not take them in time is gone.
type writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	stream  *session.Stream
	buffer  []byte
}

func (p *writer) append(message []byte) {
	p.buffer = rpc.AppendEvent(p.buffer, rpc.Event{Message: message})
}

// gather appends what there is, to be sent in one go. It says whether there is
// nothing and never will be.
func (p *writer) gather(c *connection) (end bool) {
	select {
	case answer := <-c.answers: // however much the server says
		p.append(answer)
	default:
	}
	for len(p.buffer) < writeSize {
		event, ok, end := c.stream.Take()
		if !ok {
			return end && len(p.buffer) == 0
		}
		if event.Message != nil { // else the client has cancelled the call
			c.note(event.Message)
			p.append(event.Message)
		}
		if record, ok := event.Tag().(*edge.Handed); ok {
			c.records.take(record)
			record.Close(edge.ErrorType(event.Failed()))
		}
	}
	return false
}

func (p *writer) flush() error {
	if err := frontend.WriteInterruptible(p.stream, p.w, p.control, p.buffer, p.timeout); err != nil {
		return err
	}
	p.buffer = p.buffer[:0]
	if cap(p.buffer) > writeSize {
		p.buffer = nil // one large message is no reason to hold on to that much
	}
	return p.control.Flush()
}
