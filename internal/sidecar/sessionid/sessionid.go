// Package sessionid makes session ids that name the pod that owns the session, to
// those who hold the server's key and to nobody else.
//
// An id is unguessable, cannot be forged or altered, and tells an outsider nothing
// about the cluster. Any replica can read out of it where the session lives, so no
// store of sessions is needed. The format, base64url without padding:
//
//	version   1 byte, 1
//	key id    4 bytes, so that keys can be rotated
//	nonce    12 bytes, random
//	sealed   50 bytes, AES-256-GCM: owner UID 16, owner address 16 + port 2, random 16
//	tag      16 bytes; version and key id are authenticated too
package sessionid

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

const (
	formatVersion = 1
	keyIDSize     = 4
	headSize      = 1 + keyIDSize
	nonceSize     = 12
	randomSize    = 16
	sealedSize    = 16 + 16 + 2 + randomSize
	tagSize       = 16
	binarySize    = headSize + nonceSize + sealedSize + tagSize

	// KeySize is the size of a key in bytes.
	KeySize = 32
)

// Length is the length of every id.
var Length = base64.RawURLEncoding.EncodedLen(binarySize)

// ErrInvalid says that a text is not an id made with one of the keys. It does not
// say why: whoever asks with a made-up id learns nothing.
var ErrInvalid = errors.New("not a session id of this server")

// Owner is the pod that a session lives in.
type Owner struct {
	UID     [16]byte       // of the pod, so that a reused address is noticed
	Address netip.AddrPort // where other replicas reach it
}

// Codec makes and reads ids.
type Codec struct {
	current key
	keys    map[[keyIDSize]byte]key
}

type key struct {
	id   [keyIDSize]byte
	aead cipher.AEAD
}

// New returns a Codec that makes ids with the first key and reads those of all.
func New(keys ...[]byte) (*Codec, error) {
	if len(keys) == 0 {
		return nil, errors.New("make session id codec: no key")
	}
	c := &Codec{keys: make(map[[keyIDSize]byte]key, len(keys))}
	for i, secret := range keys {
		k, err := newKey(secret)
		if err != nil {
			return nil, fmt.Errorf("use key %d for session ids: %w", i, err)
		}
		if i == 0 {
			c.current = k
		}
		c.keys[k.id] = k
	}
	return c, nil
}

func newKey(secret []byte) (key, error) {
	if len(secret) != KeySize {
		return key{}, fmt.Errorf("a key has %d bytes, not %d", KeySize, len(secret))
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return key{}, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return key{}, err
	}
	k := key{aead: aead}
	digest := sha256.Sum256(append([]byte("slipway session key id\x00"), secret...))
	copy(k.id[:], digest[:])
	return k, nil
}

// Mint returns a new id for a session that lives with the owner.
func (c *Codec) Mint(owner Owner) string {
	raw := make([]byte, headSize+nonceSize, binarySize)
	raw[0] = formatVersion
	copy(raw[1:], c.current.id[:])
	_, _ = rand.Read(raw[headSize:]) // never fails: without randomness the program ends

	var plain [sealedSize]byte
	copy(plain[:], owner.UID[:])
	address := owner.Address.Addr().As16()
	copy(plain[16:], address[:])
	binary.BigEndian.PutUint16(plain[32:], owner.Address.Port())
	_, _ = rand.Read(plain[34:])

	raw = c.current.aead.Seal(raw, raw[headSize:], plain[:], raw[:headSize])
	return base64.RawURLEncoding.EncodeToString(raw)
}

// Parse returns the owner that an id names, or ErrInvalid. It looks at nothing of
// a text that does not have the length of an id.
func (c *Codec) Parse(id string) (Owner, error) {
	if len(id) != Length {
		return Owner{}, ErrInvalid
	}
	var raw [binarySize]byte
	if _, err := base64.RawURLEncoding.Strict().Decode(raw[:], []byte(id)); err != nil || raw[0] != formatVersion {
		return Owner{}, ErrInvalid
	}
	k, ok := c.keys[[keyIDSize]byte(raw[1:headSize])]
	if !ok {
		return Owner{}, ErrInvalid
	}
	sealed := raw[headSize+nonceSize:]
	plain, err := k.aead.Open(sealed[:0], raw[headSize:headSize+nonceSize], sealed, raw[:headSize])
	if err != nil {
		return Owner{}, ErrInvalid
	}
	address := netip.AddrFrom16([16]byte(plain[16:32])).Unmap()
	return Owner{
		UID:     [16]byte(plain[:16]),
		Address: netip.AddrPortFrom(address, binary.BigEndian.Uint16(plain[32:])),
	}, nil
}
