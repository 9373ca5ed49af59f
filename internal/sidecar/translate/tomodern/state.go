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
	"time"
)

const keyBytes = 32

// stateBytes is how long what a client carries can be.
const stateBytes = 256

// sealer makes and reads what clients carry from one round of a call to the next. It is
// sealed, since it steers what happens (I-04), and bound to whom it was given and to
// what was asked for: both are needed to open it.
type sealer struct{ aead cipher.AEAD }

// newSealer makes up a key. Nobody else needs it: a parked call lives in this process only,
// and what another instance has sealed is none of ours.
func newSealer() sealer {
	key := make([]byte, keyBytes)
	_, _ = rand.Read(key) // which never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key is of the right size
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // the block is of the right size
	}
	return sealer{aead}
}

// ticket is what a client carries.
type ticket struct {
	park    string // of parkBytes
	round   uint32
	expires time.Time
}

const (
	parkBytes   = 16
	ticketBytes = parkBytes + 4 + 8
)

func newParkID() string {
	id := make([]byte, parkBytes)
	_, _ = rand.Read(id) // which never fails
	return string(id)
}

func (s sealer) seal(t ticket, bound []byte) string {
	plain := make([]byte, 0, ticketBytes)
	plain = append(plain, t.park...)
	plain = binary.BigEndian.AppendUint32(plain, t.round)
	plain = binary.BigEndian.AppendUint64(plain, uint64(t.expires.UnixMilli()))
	sealed := s.aead.Seal(nil, nil, plain, bound) //nolint:gosec // The nonce is made by it.
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// open reads a ticket, if it is one of ours, for this, and has not expired.
func (s sealer) open(text, bound []byte) (t ticket, ok bool) {
	if len(text) > stateBytes {
		return t, false
	}
	sealed, err := base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	if err != nil {
		return t, false
	}
	plain, err := s.aead.Open(nil, nil, sealed, bound)
	if err != nil || len(plain) != ticketBytes {
		return t, false
	}
	t = ticket{
		park:    string(plain[:parkBytes]),
		round:   binary.BigEndian.Uint32(plain[parkBytes:]),
		expires: time.UnixMilli(int64(binary.BigEndian.Uint64(plain[parkBytes+4:]))), //nolint:gosec // We made it.
	}
	return t, time.Now().Before(t.expires)
}

// boundTo is what a ticket is bound to: the principal that made the call, what its client
// can do, and what was asked for. A client may come back with a token that was refreshed,
// and may spell its arguments differently the second time: what they mean counts.
func boundTo(g *group, method string, name, arguments []byte) []byte {
	hash := sha256.New()
	for _, part := range [][]byte{[]byte(g.caller.Principal), []byte(g.capabilities.text()), []byte(method), name, canonical(arguments)} {
		_, _ = hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		_, _ = hash.Write(part)
	}
	return hash.Sum(nil)
}

// canonical spells a value in one way. Numbers stay as they are: there are those that
// cannot be read without loss.
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
