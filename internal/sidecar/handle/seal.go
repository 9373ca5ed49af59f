package handle

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// sealSize is how much a sealed state has in front of what the server gave: the seal and a dot. No encoder of JSON
// escapes a character of them.
var sealSize = sessionid.StateLength + len(".")

// escapedBytes is how long a state with escapes may be, with its seal. A scan refuses longer ones.
const escapedBytes = 64 << 10

// seal returns what to put in front of a state. It returns false if the state is too long.
func (b *Binder) seal(to *caller.Caller, message []byte, state rpc.Span) ([]byte, bool) {
	if raw := state.Of(message); len(raw)+sealSize > escapedBytes && bytes.IndexByte(raw, '\\') >= 0 {
		return nil, false
	}
	digest := digestOf(to, rpc.Text(message, state))
	return []byte(b.Keys.States().Seal(b.Owner, &digest) + "."), true
}

// OwnerOf returns the pod that gave the caller the state which a request names. It returns false if the request
// names none, or one that the caller did not get from a pod of this server. The message is one that rpc.Scan has
// accepted.
func OwnerOf(states *sessionid.States, by *caller.Caller, message []byte, e *rpc.Envelope) (sessionid.Owner, bool) {
	state, err := stateIn(message, e)
	if err != nil || isAbsent(message, state) {
		return sessionid.Owner{}, false
	}
	owner, err := open(states, by, message, state)
	return owner, err == nil
}

// stateIn returns where a request has a state. A scan accepts the name in one spelling only.
func stateIn(message []byte, e *rpc.Envelope) (rpc.Span, error) {
	if !bytes.Contains(e.Params.Of(message), []byte(`"`+memberState+`"`)) { // nearly always
		return rpc.Span{}, nil
	}
	found, err := rpc.Find(message, e.Params, memberState)
	if err != nil {
		return rpc.Span{}, err
	}
	return found[0], nil
}

var errNoSeal = errors.New("there is no seal")

// open returns the pod that gave a state to the caller. The error is sessionid.ErrOther if a pod has given it to
// another caller, or another state.
func open(states *sessionid.States, by *caller.Caller, message []byte, state rpc.Span) (sessionid.Owner, error) {
	raw := state.Of(message)
	if raw[0] != '"' || len(raw) < sealSize+len(`""`) || raw[sealSize] != '.' {
		return sessionid.Owner{}, errNoSeal
	}
	// The seal has no escapes, so the state can be decoded without it.
	raw[sealSize] = '"'
	text := rpc.Text(message, rpc.Span{Start: state.Start + sealSize, End: state.End})
	raw[sealSize] = '.'
	digest := digestOf(by, text)
	return states.Open(string(raw[1:sealSize]), &digest)
}

// unseal removes the seal. Blanks take its place in front of the string, so that nothing moves.
func unseal(message []byte, state rpc.Span) {
	raw := state.Of(message)
	for i := range sealSize {
		raw[i] = ' '
	}
	raw[sealSize] = '"'
}

// digestOf stands for a state of a caller. A client may spell the state with other escapes than the server, so the digest
// is of the decoded text.
func digestOf(c *caller.Caller, state []byte) (digest sessionid.Digest) {
	hash, who := sha256.New(), c.PrincipalDigest()
	_, _ = hash.Write(who[:]) // never fails
	_, _ = hash.Write(state)
	hash.Sum(digest[:0])
	return digest
}

// The id of an event has a proof in front, in base64url, and a dot.
var (
	encoding  = base64.RawURLEncoding
	proofSize = encoding.EncodedLen(sha256.Size) + len(".")
)

// BindEvent returns the id of an event for the principal that gets the event.
func (b *Binder) BindEvent(to caller.Principal, id []byte) []byte {
	proof := proofOf(b.Keys.Ring().Current, to, id)
	return append(append(encoding.AppendEncode(make([]byte, 0, proofSize+len(id)), proof), '.'), id...)
}

// ClaimEvent returns the server's id of the event after which the principal wants to resume a stream. It
// returns false if the principal did not get that event.
func (b *Binder) ClaimEvent(by caller.Principal, id string) (string, bool) {
	if len(id) < proofSize || id[proofSize-1] != '.' {
		return "", false
	}
	presented, err := encoding.Strict().DecodeString(id[:proofSize-1])
	if err != nil {
		return "", false
	}
	own := id[proofSize:]
	for _, key := range b.Keys.Ring().All() {
		if hmac.Equal(presented, proofOf(key, by, []byte(own))) {
			return own, true
		}
	}
	return own, false
}

// proofOf proves that the adapter gave the id of an event to a principal.
func proofOf(key adapterapi.Key, principal caller.Principal, id []byte) []byte {
	mac := hmac.New(sha256.New, key.Derive(adapterapi.UseEventIDs))
	_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(principal)))) // never fails
	_, _ = mac.Write([]byte(principal))
	_, _ = mac.Write(id)
	return mac.Sum(nil)
}
