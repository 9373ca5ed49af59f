package shared

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/version"
)

// newest is the revision that the process is asked for. The one that it answers with is
// the only one that its sessions can have: the adapter does not translate between those
// that have sessions.
const newest = front.Revision20251125

// hello is the process's answer to initialize, as sessions are given it.
type hello struct {
	answer  []byte
	id      rpc.Span
	logging bool // the process has log messages, though no session gets any
}

// handshake initializes the process.
func (r *run) handshake(ctx context.Context) error {
	params := rpc.InitializeParams(newest, "{}", version.Get().Version)
	r.mu.Lock()
	answered := r.AskLocked(rpc.MethodInitialize, params, 2*r.options.StartTimeout) // the context ends first
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
	r.PostLocked([]byte(rpc.Initialized))
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
	return &RefusedError{read.Code, rpc.ClipTo(raw, most)}
}

// readHello checks the answer and takes out of it what sessions cannot have: tasks
// belong to whoever began them, and a shared process cannot tell who asks.
func readHello(answer session.Message) (hello, error) {
	envelope := &answer.Envelope
	if envelope.Error.Present() {
		return hello{}, refusedBy(envelope.Error.Of(answer.Bytes))
	}
	text := answer.Bytes
	if !envelope.Result.IsObject(text) {
		return hello{}, fmt.Errorf("read the server's answer to initialize: %w", errNotAnObject)
	}
	if revision := rpc.Lookup(text, envelope.Result, "protocolVersion"); !front.IsServed(string(rpc.Text(text, revision))) {
		return hello{}, fmt.Errorf("the server answered initialize with a protocol revision that is not served: %q", rpc.Clip(revision.Of(text)))
	}
	capabilities := rpc.Lookup(text, envelope.Result, "capabilities")
	if !capabilities.IsObject(text) {
		return hello{}, fmt.Errorf("read the server's capabilities: %w", errNotAnObject)
	}
	var edits rpc.Edits
	edits.Filter(text, capabilities, func(m rpc.Member) bool { return string(m.Name) != "tasks" })
	return hello{
		answer: edits.Edited(text), id: edits.Moved(envelope.ID),
		logging: rpc.Lookup(text, capabilities, "logging").Present(),
	}, nil
}

var errNotAnObject = errors.New("not an object")
