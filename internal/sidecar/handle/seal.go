package handle

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// A sealed state, or id of an event, is the proof in base64url, a dot, and what the server gave. No encoder of
// JSON escapes a character of the proof.
var (
	encoding = base64.RawURLEncoding
	sealSize = encoding.EncodedLen(sha256.Size) + len(".")
)

// escapedBytes is how long a state with escapes may be, with its proof. A scan refuses longer ones.
const escapedBytes = 64 << 10

// seal returns what to put in front of a state. It returns false if the state is too long.
func (b *Binder) seal(to caller.Principal, message []byte, state rpc.Span) ([]byte, bool) {
	if raw := state.Of(message); len(raw)+sealSize > escapedBytes && bytes.IndexByte(raw, '\\') >= 0 {
		return nil, false
	}
	return b.prove(adapterapi.UseStates, to, rpc.Text(message, state)), true
}

// prove returns what to put in front of a text.
func (b *Binder) prove(use adapterapi.Use, to caller.Principal, text []byte) []byte {
	proof := proofOf(b.ring().Current.Derive(use), to, text)
	return append(encoding.AppendEncode(make([]byte, 0, sealSize), proof), '.')
}

// opens reports whether a state that a client sends is sealed for the principal, with any key of the ring.
func (b *Binder) opens(by caller.Principal, message []byte, state rpc.Span) bool {
	raw := state.Of(message)
	if raw[0] != '"' || len(raw) < sealSize+len(`""`) || raw[sealSize] != '.' {
		return false
	}
	// The proof has no escapes, so the state can be decoded without it.
	raw[sealSize] = '"'
	text := rpc.Text(message, rpc.Span{Start: state.Start + sealSize, End: state.End})
	raw[sealSize] = '.'
	return b.isProved(adapterapi.UseStates, by, raw[1:sealSize], text)
}

// isProved reports whether a proof in base64url is that of the text, with any key of the ring.
func (b *Binder) isProved(use adapterapi.Use, by caller.Principal, proof, text []byte) bool {
	presented, err := encoding.Strict().DecodeString(string(proof))
	if err != nil {
		return false
	}
	for _, key := range b.ring().All() {
		if hmac.Equal(presented, proofOf(key.Derive(use), by, text)) {
			return true
		}
	}
	return false
}

// BindEvent returns the id of an event for the principal that gets the event.
func (b *Binder) BindEvent(to caller.Principal, id []byte) []byte {
	return append(b.prove(adapterapi.UseEventIDs, to, id), id...)
}

// ClaimEvent returns the server's id of the event after which the principal wants to resume a stream. It
// returns false if the principal did not get that event.
func (b *Binder) ClaimEvent(by caller.Principal, id string) (string, bool) {
	if len(id) < sealSize || id[sealSize-1] != '.' {
		return "", false
	}
	proof, own := id[:sealSize-1], id[sealSize:]
	return own, b.isProved(adapterapi.UseEventIDs, by, []byte(proof), []byte(own))
}

// unseal removes the proof. Blanks take its place in front of the string, so that nothing moves.
func unseal(message []byte, state rpc.Span) {
	raw := state.Of(message)
	for i := range sealSize {
		raw[i] = ' '
	}
	raw[sealSize] = '"'
}

// proofOf proves that the adapter gave a state to a principal. A client may spell the state with other
// escapes than the server, so the proof is about the decoded text.
func proofOf(key []byte, principal caller.Principal, state []byte) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(principal)))) // never fails
	_, _ = mac.Write([]byte(principal))
	_, _ = mac.Write(state)
	return mac.Sum(nil)
}
