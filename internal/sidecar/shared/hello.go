package shared

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/version"
)

// newest is the revision that the process is asked for. Whichever of these it
// answers with is the one that it speaks, and the only one that a session can have:
// nobody translates between them.
const newest = frontend.Revision20251125

var revisions = frontend.Revisions()

// hello is the process's answer to initialize, as sessions are given it.
type hello struct {
	answer  []byte
	id      rpc.Span
	logging bool // the process has log messages, though no session gets any
}

// handshake initializes the process.
func (r *run) handshake(ctx context.Context) error {
	params := `"protocolVersion":"` + newest + `","capabilities":{},"clientInfo":{"name":"slipway","version":` + string(rpc.AppendString(nil, version.Get().Version)) + `}`
	r.mu.Lock()
	answered := r.AskLocked("initialize", params, 2*r.options.StartTimeout) // the context ends first
	r.mu.Unlock()
	answer, err := r.Await(ctx, answered)
	if err != nil {
		return fmt.Errorf("initialize server: %w", err)
	}
	if r.hello, err = readHello(answer); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.PostLocked([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	return nil
}

// RefusedError says that the process answered initialize with an error.
type RefusedError struct {
	Code int // of JSON-RPC
	text string
}

func (e *RefusedError) Error() string { return "the server refused initialize: " + e.text }

func refusedBy(raw []byte) *RefusedError {
	const most = 500
	var read struct {
		Code int `json:"code"`
	}
	_ = json.Unmarshal(raw, &read) // else it has no code, and is shown as it is
	return &RefusedError{read.Code, string(bytes.ToValidUTF8(raw[:min(len(raw), most)], nil))}
}

// readHello checks the answer and takes out of it what sessions cannot have: tasks
// belong to whoever began them, and a shared process cannot tell who asks.
func readHello(answer session.Message) (hello, error) {
	envelope := &answer.Envelope
	if envelope.Error.Present() {
		return hello{}, refusedBy(envelope.Error.Of(answer.Bytes))
	}
	result, err := members(answer.Bytes, envelope.Result)
	if err != nil {
		return hello{}, fmt.Errorf("read the server's answer to initialize: %w", err)
	}
	var revision string
	if value := find(result, "protocolVersion").Of(answer.Bytes); json.Unmarshal(value, &revision) != nil || !slices.Contains(revisions, revision) {
		const most = 64
		return hello{}, fmt.Errorf("the server answered initialize with a protocol revision that is not served: %q", value[:min(len(value), most)])
	}
	capabilities, err := members(answer.Bytes, find(result, "capabilities"))
	if err != nil {
		return hello{}, fmt.Errorf("read the server's capabilities: %w", err)
	}
	agreed := hello{id: envelope.ID, logging: find(capabilities, "logging").Present()}
	without := cut(capabilities, "tasks")
	agreed.answer = rpc.AppendEdited(nil, answer.Bytes, without...)
	for _, edit := range without {
		if edit.Span.End <= agreed.id.Start {
			removed := edit.Span.End - edit.Span.Start
			agreed.id = rpc.Span{Start: agreed.id.Start - removed, End: agreed.id.End - removed}
		}
	}
	return agreed, nil
}

// member is a member of an object, with where its name begins and what its value is.
type member struct {
	name  string
	start int
	value rpc.Span
}

var errNotAnObject = errors.New("not an object")

// members are those of an object that stands in a message. The message's syntax has
// been checked.
func members(message []byte, object rpc.Span) (found []member, err error) {
	if !object.Present() || message[object.Start] != '{' {
		return nil, errNotAnObject
	}
	decoder := json.NewDecoder(bytes.NewReader(object.Of(message)))
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	for decoder.More() {
		// Between here and the name there is at most a comma and white space.
		from := object.Start + int(decoder.InputOffset())
		start := from + bytes.IndexByte(message[from:], '"')
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		end := object.Start + int(decoder.InputOffset())
		found = append(found, member{fmt.Sprint(name), start, rpc.Span{Start: end - len(value), End: end}})
	}
	return found, nil
}

func find(in []member, name string) rpc.Span {
	for _, m := range in {
		if m.name == name {
			return m.value
		}
	}
	return rpc.Span{}
}

// cut is what must be edited for the members with a name to be gone, with the comma
// that belongs to each.
func cut(from []member, name string) (edits []rpc.Edit) {
	kept := -1 // the last member before that stays
	for i, m := range from {
		switch {
		case m.name != name:
			kept = i
		case i+1 < len(from):
			edits = append(edits, rpc.Edit{Span: rpc.Span{Start: m.start, End: from[i+1].start}})
		case kept >= 0:
			// The comma before it goes, and with it all that was cut behind that.
			last := rpc.Span{Start: from[kept].value.End, End: m.value.End}
			for len(edits) > 0 && edits[len(edits)-1].Span.Start >= last.Start {
				edits = edits[:len(edits)-1]
			}
			edits = append(edits, rpc.Edit{Span: last})
		default:
			edits = append(edits, rpc.Edit{Span: rpc.Span{Start: m.start, End: m.value.End}})
		}
	}
	return edits
}
