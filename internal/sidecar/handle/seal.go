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

// A sealed state is the proof in base64url, a dot, and the state as the server spelled it. No encoder of JSON
// escapes a character of the proof.
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
	proof := proofOf(b.ring().Current, to, rpc.Text(message, state))
	return append(encoding.AppendEncode(make([]byte, 0, sealSize), proof), '.'), true
}

// opens reports whether a state that a client sends is sealed for the principal, with any key of the ring.
func (b *Binder) opens(by caller.Principal, message []byte, state rpc.Span) bool {
	raw := state.Of(message)
	if raw[0] != '"' || len(raw) < sealSize+len(`""`) || raw[sealSize] != '.' {
		return false
	}
	presented, err := encoding.Strict().DecodeString(string(raw[1:sealSize]))
	if err != nil {
		return false
	}
	// The proof has no escapes, so the state can be decoded without it.
	raw[sealSize] = '"'
	text := rpc.Text(message, rpc.Span{Start: state.Start + sealSize, End: state.End})
	raw[sealSize] = '.'
	for _, key := range b.ring().All() {
		if hmac.Equal(presented, proofOf(key, by, text)) {
			return true
		}
	}
	return false
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
func proofOf(key adapterapi.Key, principal caller.Principal, state []byte) []byte {
	mac := hmac.New(sha256.New, key.Derive(adapterapi.UseStates))
	_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(principal)))) // never fails
	_, _ = mac.Write([]byte(principal))
	_, _ = mac.Write(state)
	return mac.Sum(nil)
}
