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

// connection is the event stream of one client, and its session. The session puts all
// messages of the server on one stream, so that the client gets them in order.
type connection struct {
	session *session.Session
	stream  *session.Stream
	records records
	answers chan []byte // answers of the adapter

	initialize atomic.Pointer[string] // id of the request, once the client has sent it
	agreed     atomic.Value           // the revision in the answer to initialize, a string
}

// begin records the id of initialize. It returns false if the client has sent one before.
func (c *connection) begin(id []byte) bool {
	text := string(id)
	return c.initialize.CompareAndSwap(nil, &text)
}

// note records the revision in the answer to initialize, before the client gets the answer. So
// the adapter knows the revision as soon as the client does.
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

// revision returns the protocol revision of the session, or "" before client and server agree
// on one.
func (c *connection) revision() string {
	agreed, _ := c.agreed.Load().(string)
	return agreed
}

// serveStream opens a session and sends its messages to the client, until the client
// disconnects or the server ends. The client cannot resume the stream, so the session ends with
// the GET.
func (t *Transport) serveStream(w http.ResponseWriter, r *edge.Request) {
	if !front.Accepts(w, r.Request, nil, front.TypeEvents) {
		return
	}
	slot, err := r.Place(w, t.Sessions)
	if err != nil {
		front.RefuseSession(w, r.Request, nil, err)
		return
	}
	if slot == nil {
		return // another instance has the session
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
	// The id is secret, so that clients cannot reach the session over Streamable HTTP.
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

// open opens a session, and its stream for all messages.
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

// Gather implements front.Source.
func (c *connection) Gather(to *front.Events) (more bool) {
	select {
	case answer := <-c.answers: // first, so that messages of the server do not delay it
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

// Wait implements front.Source.
func (c *connection) Wait(ctx context.Context, to *front.Events) {
	select {
	case <-ctx.Done():
	case answer := <-c.answers:
		to.Append(rpc.Event{Data: answer})
	case <-c.stream.Ready():
	}
}

// records are the records of requests whose answers the adapter has not written yet.
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

// cancel closes all records when the connection ends.
func (r *records) cancel() {
	r.mu.Lock()
	open := r.open
	r.open, r.over = nil, true
	r.mu.Unlock()
	for record := range open {
		record.Close(edge.Cancelled)
	}
}
