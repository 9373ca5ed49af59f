package tomodern

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
)

// stateBytes is how long a requestState can be.
const stateBytes = 256

// sealer makes and reads requestState, which clients carry from one round of a call to the
// next. It is sealed, because the adapter acts on it (I-04), and bound to the client and to the
// call.
type sealer struct{ aead cipher.AEAD }

// newSealer makes up a key. No other instance has it, because a parked call lives in this one
// only.
func newSealer() sealer {
	var key [32]byte
	_, _ = rand.Read(key[:]) // which never fails
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key is of the right size
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // the block is of the right size
	}
	return sealer{aead}
}

// seal makes the requestState of one round of a parked call.
func (s sealer) seal(id string, round uint32, bound []byte) string {
	plain := append(binary.BigEndian.AppendUint32(nil, round), id...)
	sealed := s.aead.Seal(nil, nil, plain, bound) //nolint:gosec // It makes the nonce.
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// open reads a requestState, if this instance has sealed it and it is bound to this.
func (s sealer) open(text, bound []byte) (id string, round uint32, ok bool) {
	if len(text) > stateBytes {
		return "", 0, false
	}
	sealed, err := base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	if err != nil {
		return "", 0, false
	}
	plain, err := s.aead.Open(nil, nil, sealed, bound)
	if err != nil {
		return "", 0, false
	}
	return string(plain[4:]), binary.BigEndian.Uint32(plain), true
}

// boundTo is the binding of a call's requestState. It is worked out once, because that takes a
// while. Then the call does not keep the arguments any more, which may be large.
func (c *call) boundTo() []byte {
	c.binding.Do(func() {
		c.bound = boundTo(c.group, c.method, []byte(c.name), c.arguments)
		c.arguments = nil
	})
	return c.bound
}

// boundTo binds a requestState to the principal that made the call, the client's capabilities,
// the method, the name and the arguments. A client may come back with a refreshed token, and may
// spell its arguments differently the second time: only their values count.
func boundTo(g *group, method string, name, arguments []byte) []byte {
	hash := sha256.New()
	for _, part := range [][]byte{[]byte(g.caller.Principal), []byte(g.capabilities.text()), []byte(method), name, canonical(arguments)} {
		_, _ = hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		_, _ = hash.Write(part)
	}
	return hash.Sum(nil)
}

// canonical spells a value in one way. Numbers stay as they are, because some cannot be read
// without loss.
func canonical(value []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var decoded any
	if decoder.Decode(&decoded) != nil {
		return value
	}
	text, err := json.Marshal(decoded)
	if err != nil {
		return value
	}
	return text
}
