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

// newest is the revision that the adapter asks the child process for. All sessions have the
// revision that the process answers with, because the adapter does not translate between the
// revisions with sessions.
const newest = front.Revision20251125

// initialized is the child process's answer to initialize, with what sessions may see of it.
type initialized struct {
	answer  []byte
	id      rpc.Span
	logging bool // the process has the logging capability
}

// handshake initializes the child process.
func (i *instance) handshake(ctx context.Context) error {
	params := rpc.InitializeParams(newest, "{}", version.Get().Version)
	i.mu.Lock()
	answered := i.AskLocked(rpc.MethodInitialize, params, 2*i.options.StartTimeout) // the context ends first
	i.mu.Unlock()
	answer, err := i.Await(ctx, answered)
	if err != nil {
		return fmt.Errorf("initialize server: %w", err)
	}
	if i.initialized, err = readInitialized(answer); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.PostLocked([]byte(rpc.Initialized))
	return nil
}

// RefusedError says that the child process answered initialize with an error.
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
	_ = json.Unmarshal(raw, &read) // an error without a code counts as one with code 0
	return &RefusedError{read.Code, rpc.ClipTo(raw, most)}
}

var errNotAnObject = errors.New("not an object")

// readInitialized checks the answer to initialize, and removes the capability for tasks: a task
// belongs to the client that began it, and a shared process cannot tell clients apart.
func readInitialized(answer session.Message) (initialized, error) {
	envelope := &answer.Envelope
	if envelope.Error.Present() {
		return initialized{}, refusedBy(envelope.Error.Of(answer.Bytes))
	}
	text := answer.Bytes
	if !envelope.Result.IsObject(text) {
		return initialized{}, fmt.Errorf("read the server's answer to initialize: %w", errNotAnObject)
	}
	if revision := rpc.Lookup(text, envelope.Result, "protocolVersion"); !front.IsServed(string(rpc.Text(text, revision))) {
		return initialized{}, fmt.Errorf("the server answered initialize with a protocol revision that is not served: %q", rpc.Clip(revision.Of(text)))
	}
	capabilities := rpc.Lookup(text, envelope.Result, "capabilities")
	if !capabilities.IsObject(text) {
		return initialized{}, fmt.Errorf("read the server's capabilities: %w", errNotAnObject)
	}
	var edits rpc.Edits
	edits.Filter(text, capabilities, func(m rpc.Member) bool { return string(m.Name) != "tasks" })
	return initialized{
		answer: edits.Edited(text), id: edits.Moved(envelope.ID),
		logging: rpc.Lookup(text, capabilities, "logging").Present(),
	}, nil
}
