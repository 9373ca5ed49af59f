package sessionid

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
)

// ring seals with one key, and opens with any of several.
type ring struct {
	current key
	keys    map[[keyIDSize]byte]key
}

type key struct {
	id    [keyIDSize]byte
	index int // among the keys of the ring
	aead  cipher.AEAD
}

func newRing(keys [][]byte) (ring, error) {
	if len(keys) == 0 {
		return ring{}, errors.New("no key")
	}
	r := ring{keys: make(map[[keyIDSize]byte]key, len(keys))}
	for i, secret := range keys {
		k, err := newKey(secret)
		if err != nil {
			return ring{}, fmt.Errorf("use key %d: %w", i, err)
		}
		k.index = i
		if i == 0 {
			r.current = k
		}
		r.keys[k.id] = k
	}
	return r, nil
}

func newKey(secret []byte) (key, error) {
	if len(secret) != KeySize {
		return key{}, fmt.Errorf("a key has %d bytes, not %d", KeySize, len(secret))
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return key{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return key{}, err
	}
	k := key{aead: aead}
	digest := sha256.Sum256(append([]byte("slipway session key id\x00"), secret...))
	copy(k.id[:], digest[:])
	return k, nil
}

// errAltered says that a key of the ring seems to have made a text that it does not open.
var errAltered = errors.New("altered, or for something else")

// largest is the most bytes of an id.
const largest = 384

// seal returns the plain text sealed, in base64url. It opens only together with the other bytes, which are no
// part of it.
func (r *ring) seal(version byte, plain, with []byte) string {
	var room [largest]byte
	raw := append(append(room[:0], version), r.current.id[:]...)
	return base64.RawURLEncoding.EncodeToString(r.current.aead.Seal(raw, nil, plain, r.additional(raw, with))) //nolint:gosec // this AEAD makes a random nonce itself
}

// open returns what was sealed: errAltered if a key of the ring seems to have done so, or else ErrInvalid.
func (r *ring) open(version byte, text string, with []byte) (plain []byte, err error) {
	var room [largest]byte
	if base64.RawURLEncoding.DecodedLen(len(text)) > largest {
		return nil, ErrInvalid
	}
	n, err := base64.RawURLEncoding.Strict().Decode(room[:], []byte(text))
	if err != nil || n < overhead || room[0] != version {
		return nil, ErrInvalid
	}
	raw := room[:n]
	k, ok := r.keys[[keyIDSize]byte(raw[1:headSize])]
	if !ok {
		return nil, ErrInvalid
	}
	if plain, err = k.aead.Open(nil, nil, raw[headSize:], r.additional(raw[:headSize], with)); err != nil {
		return nil, errAltered
	}
	return plain, nil
}

// additional is what a seal authenticates besides what it hides.
func (r *ring) additional(head, with []byte) []byte {
	if len(with) == 0 {
		return head
	}
	return append(append(make([]byte, 0, headSize+len(with)), head...), with...)
}
