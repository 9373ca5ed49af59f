package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// link is what connections have in common that have a POST of its own for each message:
// to whoever uses one it looks like a process that is written to and read from.
type link struct {
	server *Server
	header http.Header // of every request
	posts  poster
	live   context.Context
	end    context.CancelFunc

	receiving sync.Mutex // streams come side by side, messages one after the other

	mu       sync.Mutex
	receive  func(session.Message)
	ended    func(error)
	endedBy  error
	inFlight map[string]*call // by id
}

// call is a request that the server has not answered.
type call struct {
	id       []byte
	ctx      context.Context // ends with the connection, or when nobody waits any more
	cancel   context.CancelFunc
	answered bool // of interest only to whoever reads the answer
	by       sender
	// learn is shown the answer before anybody else is; may be nil.
	learn func(answer session.Message)
}

func newLink(to *Server, from *caller.Caller) *link {
	live, end := context.WithCancel(context.Background())
	return &link{
		server: to, header: shownBy(from), live: live, end: end,
		posts: newPoster(to.Calls, to.SendTimeout), inFlight: map[string]*call{},
	}
}

// Serve has the server's messages received until the connection ends, and then calls
// ended with the reason, once. It must be called once, before the first Send. A message
// is valid until receive returns.
func (l *link) Serve(receive func(session.Message), ended func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.receive, l.ended = receive, ended
	if l.endedBy != nil {
		go ended(l.endedBy)
	}
}

// finish ends the connection, and says whether it had not ended before. Whoever finds
// out that it must may be sending just now, so ended is told by somebody else.
func (l *link) finish(reason error) bool {
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endedBy != nil {
		return false
	}
	l.endedBy = reason
	if l.ended != nil {
		go l.ended(reason)
	}
	return true
}

// begin notes a request, so that it can be cancelled. It lasts no longer than live does.
func (l *link) begin(live context.Context, id []byte, learn func(session.Message)) (*call, error) {
	c := &call{id: bytes.Clone(id), learn: learn}
	c.ctx, c.cancel = context.WithCancel(live)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight[string(id)] != nil {
		c.cancel()
		return nil, session.ErrDuplicateID
	}
	l.inFlight[string(id)] = c
	return c, nil
}

// forget is for a call that nothing is done for any more.
func (l *link) forget(c *call) {
	c.cancel()
	l.settle(c)
}

// settle is for a call that has its answer: its id may be used again.
func (l *link) settle(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight[string(c.id)] == c {
		delete(l.inFlight, string(c.id))
	}
}

// find is the request with the id, if it is in flight.
func (l *link) find(id []byte) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inFlight[string(id)]
}

// request posts a request: do sends it and has its answer received. An error of do means
// that it was never sent.
func (l *link) request(ctx context.Context, c *call, do func(ctx context.Context) error) error {
	err := l.posts.post(ctx, c.ctx, posting{
		do: func(ctx context.Context) error {
			err := do(ctx)
			if err == nil {
				l.forget(c)
			}
			return err
		},
		late: func(over <-chan error, _ context.CancelFunc) {
			go func() {
				if err := <-over; err != nil { // it was to be sent once more
					l.fail(c, err.Error())
					l.forget(c)
				}
			}()
		},
	})
	if err != nil {
		l.forget(c)
	}
	return err
}

// deliver has messages received that came on the stream of a call, or on one that belongs
// to none. Answers to anything but the call are none.
// The messages may be kept if they are owned.
func (l *link) deliver(c *call, data []byte, owned bool) {
	if !rpc.IsBatch(data) {
		l.deliverOne(c, data, owned)
		return
	}
	// Servers of revision 2025-03-26 may put several into one.
	err := rpc.Batch(data, func(message []byte) error {
		l.deliverOne(c, message, false)
		return nil
	})
	if err != nil {
		l.server.Junk.Inc()
	}
}

func (l *link) deliverOne(c *call, message []byte, owned bool) {
	if !utf8.Valid(message) {
		message = []byte(strings.ToValidUTF8(string(message), "\ufffd"))
	}
	envelope, err := rpc.ScanLenient(message)
	if err != nil {
		l.server.Junk.Inc()
		return
	}
	received := session.Message{Bytes: message, Envelope: envelope, Owned: owned, Charged: owned}
	if c != nil {
		received.Call = c.id // whatever it is: the stream says whose
	}
	if envelope.Kind == rpc.Response {
		if c == nil || c.answered || !rpc.SameID(envelope.ID.Of(message), c.id) {
			l.server.Junk.Inc()
			return
		}
		c.answered = true
		l.settle(c)
		if c.learn != nil {
			c.learn(received)
		}
	}
	l.hand(received)
}

// hand gives a message to whoever receives.
func (l *link) hand(message session.Message) {
	l.receiving.Lock()
	defer l.receiving.Unlock()
	l.mu.Lock()
	receive := l.receive
	over := l.endedBy != nil
	l.mu.Unlock()
	if !over && receive != nil {
		receive(message)
	}
}

// failed is for a request that could not be made: it says why if it was never sent, and
// answers the call otherwise, as the server may have done what it was asked to.
func (l *link) failed(ctx context.Context, c *call, err error) error {
	if ctx.Err() != nil || IsDown(err) {
		return err
	}
	l.fail(c, "the server did not answer: "+err.Error())
	return nil
}

// fail answers a call in the server's place, if anybody waits for that.
func (l *link) fail(c *call, text string) {
	l.answer(c, rpc.AppendError(nil, c.id, rpc.CodeInternal, text, nil))
}

func (l *link) answer(c *call, message []byte) {
	if c.answered || c.ctx.Err() != nil {
		return
	}
	if envelope, err := rpc.ScanLenient(message); err == nil {
		c.answered = true
		l.settle(c)
		l.hand(session.Message{Bytes: message, Envelope: envelope, Owned: true, Charged: true})
	}
}

var errMessageTooLarge = errors.New("an answer is larger than the limit")

// readBody reads an answer that is no stream.
func (l *link) readBody(response *http.Response) ([]byte, error) {
	limit := int64(l.server.MessageBytes)
	body, err := l.readAll(io.LimitReader(response.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the server's answer: %w", err)
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("%w of %d bytes", errMessageTooLarge, limit)
	}
	return body, nil
}

// readAll is io.ReadAll for a body that may be large.
func (l *link) readAll(from io.Reader) ([]byte, error) {
	room := budget.Room{Account: l.server.Memory.Account(nil)}
	defer func() { _ = room.Reserve(0) }() // the body is for the session to count
	body := make([]byte, 0, 512)
	for {
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
		if len(body) < cap(body) {
			continue
		}
		size := min(2*cap(body), max(l.server.MessageBytes+bytes.MinRead, cap(body)+1))
		if err := room.Reserve(size); err != nil {
			return nil, err
		}
		body = append(make([]byte, 0, size), body...)
	}
}

// errorIn is the answer to a call that stands in the body of a HTTP error: the error of
// the body, if it is one about this call or about none, or else one that has the status.
func errorIn(c *call, status int, body []byte) []byte {
	envelope, err := rpc.ScanLenient(body)
	if err == nil && envelope.Kind == rpc.Response && envelope.Error.Present() && (!envelope.ID.Present() || rpc.SameID(envelope.ID.Of(body), c.id)) {
		return rpc.AppendErrorObject(nil, c.id, envelope.Error.Of(body))
	}
	text := fmt.Sprintf("the server answers with status %d", status)
	if said := strings.Join(strings.Fields(strings.ToValidUTF8(string(body[:min(len(body), longestSaid)]), "?")), " "); said != "" {
		text += ": " + rpc.Clip(said)
	}
	return rpc.AppendError(nil, c.id, rpc.CodeInternal, text, nil)
}

// codeOf is the code of the error in an answer.
func codeOf(answer []byte) int {
	var response struct {
		Error struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(answer, &response) != nil {
		return 0
	}
	return response.Error.Code
}

// longestSaid is how much is looked at of what a server says that is no message.
const longestSaid = 512

// newEventReader reads a stream of the server. No event may have more bytes than the limit.
// Large ones take memory of the budget while they are read.
func newEventReader(stream io.Reader, limit int, memory *budget.Budget) *rpc.EventReader {
	events := rpc.NewEventReader(stream, limit)
	events.Bound((&budget.Room{Account: memory.Account(nil)}).Reserve)
	return events
}

// readEvents has the messages of a stream received, until the call has its answer or the
// stream ends, and returns how many events there were.
func (l *link) readEvents(events *rpc.EventReader, c *call) (count int, err error) {
	for c == nil || !c.answered {
		event, err := events.Next()
		if err != nil {
			return count, err
		}
		count++
		if event.Type != rpc.EventMessage {
			l.server.Junk.Inc()
			continue
		}
		l.deliver(c, event.Data, event.Owned)
	}
	return count, nil
}

// endWait is how long the end of a stream is awaited that has nothing more to say. Most
// servers end it at once, and then its connection can be used again.
const endWait = 100 * time.Millisecond

// awaitEnd reads what is left of a stream, which is not much, or else is not wanted.
func awaitEnd(stream io.ReadCloser) {
	const most = 4 << 10
	timer := time.AfterFunc(endWait, func() { _ = stream.Close() })
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, stream, most)
}
