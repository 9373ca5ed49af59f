// Package handle binds the handles that a server gives to its callers: states of requests, and tasks. A
// server that speaks HTTP does not learn who calls, so it cannot tell whether a handle is the caller's. The
// adapter can: a handle of another principal does not exist.
//
// A state carries a proof of whose it is, so that every replica can verify it. The adapter cannot do that with
// the id of a task, which stands in too many messages. It remembers who began a task.
package handle

import (
	"bytes"
	"errors"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// Binder binds handles to principals. Goroutines may call its methods at the same time.
type Binder struct {
	ring func() adapterapi.Keyring
}

// New returns a Binder. The ring has the server's keys, which all replicas share.
func New(ring func() adapterapi.Keyring) *Binder { return &Binder{ring: ring} }

// ErrState says that a state is not the caller's. Servers answer with such a text to one that they do not know.
var ErrState = errors.New("requestState invalid or expired; call again")

const memberState = "requestState"

// Claim checks the handles in a message that rpc.Scan has accepted, and removes from them what Bind has added.
// It overwrites the message, but moves nothing in it. The text of the error is for the client.
func (b *Binder) Claim(by caller.Principal, message []byte, e *rpc.Envelope) error {
	if e.Kind == rpc.Response || !e.Params.IsObject(message) {
		return nil
	}
	return b.claimState(by, message, e)
}

// claimState verifies a state. A scan accepts its name in one spelling only.
func (b *Binder) claimState(by caller.Principal, message []byte, e *rpc.Envelope) error {
	if !bytes.Contains(e.Params.Of(message), []byte(`"`+memberState+`"`)) { // nearly always
		return nil
	}
	found, err := rpc.Find(message, e.Params, memberState)
	if err != nil {
		return ErrState
	}
	state := found[0]
	if !state.Present() || string(state.Of(message)) == "null" {
		return nil
	}
	if !b.opens(by, message, state) {
		return ErrState
	}
	unseal(message, state)
	return nil
}

// Mentions reports whether a text may have a handle that Bind looks for. It is much faster than a scan. A
// server that spells the name of a handle with escapes gives the client one that Claim refuses.
func Mentions(text []byte) bool {
	return bytes.Contains(text, []byte(`"`+memberState+`"`))
}

// Bind returns an answer with its handles bound to the principal that gets it. The answer is a response that
// rpc.ScanLenient has accepted. Bind may overwrite it, and the envelope does not fit what Bind returns. An
// answer in which parsers may find different handles becomes an error.
func (b *Binder) Bind(to caller.Principal, answer []byte, e *rpc.Envelope) []byte {
	if !e.Result.IsObject(answer) || !Mentions(e.Result.Of(answer)) {
		return answer
	}
	found, err := rpc.Find(answer, e.Result, memberState)
	if err != nil {
		return unbound(answer, e, err.Error())
	}
	var edits rpc.Edits
	if state := found[0]; state.Present() && answer[state.Start] == '"' {
		seal, ok := b.seal(to, answer, state)
		if !ok {
			return unbound(answer, e, "its requestState is too long")
		}
		edits.Replace(rpc.Span{Start: state.Start + 1, End: state.Start + 1}, seal)
	}
	if edits.Len() == 0 {
		return answer
	}
	return edits.EditedInPlace(answer)
}

// unbound is the answer in the place of one whose handles cannot be bound.
func unbound(answer []byte, e *rpc.Envelope, why string) []byte {
	return rpc.AppendError(nil, e.ID.Of(answer), rpc.CodeInternal, "the server's answer cannot be bound to you: "+why, nil)
}
