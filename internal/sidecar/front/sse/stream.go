package sse

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// errGone ends the session of a client that has closed its event stream.
var errGone = fmt.Errorf("%w: it closed its connection", session.ErrClient)

// connection is the event stream of one client, and its session. All messages of the
// server are on one stream, so that they arrive in the order in which the server sends
// them.
type connection struct {
	session *session.Session
	stream  *session.Stream
	records records
	answers chan []byte // of the adapter itself

	initialize atomic.Pointer[string] // its id, once the server has it
	agreed     atomic.Value           // string: the revision in the answer to it
}

// begin records the id of initialize. It returns false if the client has sent one before.
func (c *connection) begin(id []byte) bool {
	text := string(id)
	return c.initialize.CompareAndSwap(nil, &text)
}

// note looks for the answer to initialize, before the client gets it. So the adapter
// knows the revision whenever the client does.
func (c *connection) note(message []byte) {
	id := c.initialize.Load()
	if id == nil || c.agreed.Load() != nil {
		return
	}
	envelope, err := rpc.Scan(message)
	if err != nil || envelope.Kind != rpc.Response || string(envelope.ID.Of(message)) != *id {
		return
	}
	revision, _, _ := rpc.Agreement(message) // empty for a malformed answer, as for an error
	c.agreed.Store(revision)
}

// revision is the protocol revision of the session; empty before client and server agree
// on one.
func (c *connection) revision() string {
	agreed, _ := c.agreed.Load().(string)
	return agreed
}

// serveStream opens a session and sends its messages to the client, until the client or
// the server ends. A client that disconnects cannot come back, so that its session and
// its server end with the GET.
func (t *Transport) serveStream(w http.ResponseWriter, r *edge.Request) {
	if !front.Accepts(w, r.Request, nil, front.TypeEvents) {
		return
	}
	slot, err := t.Sessions.Reserve(r.Context(), &r.Caller)
	if err != nil {
		front.RefuseSession(w, r.Request, nil, err)
		return
	}
	defer slot.Release()
	opened, general, err := t.open(r.Context(), &r.Caller)
	if err != nil {
		front.Unavailable(w, nil, err.Error())
		return
	}
	defer opened.End(errGone)
	opened.Owner = caller.NewOwner(&r.Caller)
	r.Record.Session = opened.Number
	// The registry has the session under a secret name, so that clients cannot reach it
	// by another transport.
	slot.Fill(r.Context(), rand.Text(), opened)

	defer general.Detach()
	c := &connection{session: opened, stream: general, answers: make(chan []byte)}
	defer c.records.cancel()
	token := t.MintToken()
	t.add(token, c)
	defer t.remove(token)
	events := front.StartEvents(w, http.StatusOK, t.WriteTimeout, general)
	events.Append(rpc.Event{Type: "endpoint", Data: []byte(t.PostTo + "?" + tokenParameter + "=" + token)})
	events.Run(r.Context(), t.KeepAlive, c)
}

// open starts a server, and opens the stream for messages that belong to no call.
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

// Gather is that of front.Source.
func (c *connection) Gather(to *front.Events) (more bool) {
	select {
	case answer := <-c.answers: // however much the server says
		to.Append(rpc.Event{Data: answer})
	default:
	}
	for !to.Full() {
		event, ok, end := c.stream.Take()
		if !ok {
			return !end
		}
		if event.Message != nil { // otherwise the client has cancelled the call
			c.note(event.Message)
			to.Append(rpc.Event{Data: event.Message})
		}
		if record, ok := event.Tag().(*edge.Handed); ok {
			c.records.take(record)
			record.Close(edge.ErrorType(event.Failed()))
		}
	}
	return true
}

// Wait is that of front.Source.
func (c *connection) Wait(ctx context.Context, to *front.Events) {
	select {
	case <-ctx.Done():
	case answer := <-c.answers:
		to.Append(rpc.Event{Data: answer})
	case <-c.stream.Ready():
	}
}

// records are those of requests whose answers the connection has not written yet.
type records struct {
	mu   sync.Mutex
	open map[*edge.Handed]struct{}
	over bool
}

func (r *records) add(record *edge.Handed) {
	r.mu.Lock()
	over := r.over
	if !over {
		if r.open == nil {
			r.open = map[*edge.Handed]struct{}{}
		}
		r.open[record] = struct{}{}
	}
	r.mu.Unlock()
	if over {
		record.Close(edge.Cancelled)
	}
}

func (r *records) take(record *edge.Handed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, record)
}

// cancel closes all records, when the connection ends.
func (r *records) cancel() {
	r.mu.Lock()
	open := r.open
	r.open, r.over = nil, true
	r.mu.Unlock()
	for record := range open {
		record.Close(edge.Cancelled)
	}
}
