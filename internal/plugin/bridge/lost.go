package bridge

import (
	"context"
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

// isLost says that nobody knows what became of the message.
func (o outcome) isLost() bool { return o.isSent && !o.isRefused && !o.isAnswered }

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
	o, err := b.deliver(ctx, content, m)
	if o.isLost() && !o.isHeard && m.isRequest() && b.isRepeatable(m) && ctx.Err() == nil {
		if again, renamed, ok := rename(content, m); ok {
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

// problem says why a request has no answer.
func (b *Bridge) problem(m message, o outcome, err error) error {
	if err == nil {
		err = errors.New("the server ended its answer before it was complete")
	}
	if !o.isLost() || b.isRepeatable(m) {
		return err
	}
	if sending, ok := errors.AsType[*url.Error](err); ok {
		err = sending.Err // the rest names an address that means nothing to anybody
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
