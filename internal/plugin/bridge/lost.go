package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// outcome is what became of a message.
type outcome struct {
	isSent     bool // a server may have it
	isRefused  bool // the server has said that it does not take it
	isHeard    bool // the client has got something for it
	isAnswered bool // the client has got the answer
}

// isLost says that neither the bridge nor the client knows what became of the message.
func (o outcome) isLost() bool { return o.isSent && !o.isRefused && !o.isAnswered }

// isMissed says that it is lost before the client got a word for it.
func (o outcome) isMissed() bool { return o.isLost() && !o.isHeard }

// isRepeatable says whether it does no harm if the server gets a request twice.
func (b *Bridge) isRepeatable(m message) bool {
	switch m.Method {
	case rpc.MethodInitialize, "ping", "server/discover", rpc.MethodReadResource, rpc.MethodGetPrompt:
		return true
	case rpc.MethodCallTool:
		return b.factsFor(m).isRepeatable
	default:
		return strings.HasSuffix(m.Method, "/list")
	}
}

// pass sends one message, and passes on what the server answers. A request is answered in any case. If its
// pod is gone before a word of the answer came, it is sent once more where that does no harm.
func (b *Bridge) pass(ctx context.Context, content []byte, m message) {
	f, land := b.depart(m)
	defer land()
	b.cancel(ctx, content, m)
	o, err := b.deliver(ctx, content, m)
	if o.isMissed() && m.isRequest() && b.isRepeatable(m) && ctx.Err() == nil {
		if again, renamed, ok := rename(content, m); ok && b.repeat(f, renamed) {
			o, err = b.deliver(ctx, again, renamed)
		}
	}
	if err == nil && m.Method == "notifications/initialized" {
		b.listen(ctx)
	}
	if !m.isRequest() || o.isAnswered || ctx.Err() != nil {
		return
	}
	b.answer(m.ID, -32000, b.problem(m, o, err).Error())
}

// flight is a request of the client that has no answer yet.
type flight struct {
	isCanceled bool
	again      json.RawMessage // id with which the bridge sends it once more
}

// depart keeps a request in mind until it lands.
func (b *Bridge) depart(m message) (f *flight, land func()) {
	if !m.isRequest() {
		return nil, func() {}
	}
	f, key := &flight{}, string(rpc.IDKey(m.ID))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flights == nil {
		b.flights = map[string]*flight{}
	}
	b.flights[key] = f
	return f, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.flights[key] == f { // the client may use an id twice
			delete(b.flights, key)
		}
	}
}

// repeat says whether a request may be sent once more: the client may have canceled it.
func (b *Bridge) repeat(f *flight, renamed message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.isCanceled {
		return false
	}
	f.again = renamed.ID
	return true
}

// cancel also cancels what the bridge has sent once more for a request that the client cancels. The server
// knows that by an id that the client does not know.
func (b *Bridge) cancel(ctx context.Context, content []byte, m message) {
	if m.Method != rpc.MethodCancelled || !m.isScanned || !m.envelope.RequestID.Present() {
		return
	}
	id := m.envelope.RequestID
	again := b.canceled(id.Of(content))
	if again == nil {
		return
	}
	content = slices.Concat(content[:id.Start], again, content[id.End:])
	if m, err := read(content); err == nil {
		_, _ = b.deliver(ctx, content, m) // a notification has no answer
	}
}

// canceled notes that the client has canceled a request, and returns the other id of that, if it has one.
func (b *Bridge) canceled(id json.RawMessage) (again json.RawMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.flights[string(rpc.IDKey(id))]
	if f == nil {
		return nil
	}
	f.isCanceled = true
	return f.again
}

// problem says why a request has no answer.
func (b *Bridge) problem(m message, o outcome, err error) error {
	if err == nil {
		err = errors.New("the server ended its answer before it was complete")
	}
	if !o.isLost() || b.isRepeatable(m) {
		return err
	}
	if sending, ok := errors.AsType[*url.Error](err); ok {
		err = sending.Err // the rest names an address that means nothing to the user
	}
	return fmt.Errorf("the server has not answered, so the request may or may not have run: %w", err)
}

// rename gives a request another id: the server may still have the one that was sent first.
func rename(content []byte, m message) (again []byte, renamed message, ok bool) {
	if !m.isScanned {
		return nil, message{}, false
	}
	id := m.envelope.ID
	again = slices.Concat(content[:id.Start], newID(), content[id.End:])
	renamed, err := read(again)
	renamed.original = m.ID
	return again, renamed, err == nil
}

// restore gives the answer to a request that was renamed the id that the client knows.
func restore(answer []byte, m message) []byte {
	if m.original == nil {
		return answer
	}
	e, err := rpc.ScanLenient(answer)
	if err != nil {
		return answer
	}
	return slices.Concat(answer[:e.ID.Start], m.original, answer[e.ID.End:])
}

// deliver sends a message, in another session if the server no longer knows that of the client.
func (b *Bridge) deliver(ctx context.Context, content []byte, m message) (outcome, error) {
	session := b.current()
	o, err := b.post(ctx, content, m)
	if !errors.Is(err, errNoSession) || m.Method == rpc.MethodInitialize {
		return o, err
	}
	if err := b.reopen(ctx, session); err != nil {
		return outcome{isRefused: true}, err
	}
	return b.post(ctx, content, m)
}
