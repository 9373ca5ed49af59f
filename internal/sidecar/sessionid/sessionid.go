// Package sessionid makes session ids that name the pod with the session. Only programs with the
// server's key can read the name.
//
// A client can neither guess, forge nor alter an id, and learns nothing about the cluster from it.
// Every replica can read from an id which pod has the session, so that replicas need no shared store
// of sessions. The format, base64url without padding:
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
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
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

// ErrInvalid says that no key of the server has made the id. It does not say why, so that a client
// learns nothing from invented ids.
var ErrInvalid = errors.New("not a session id of this server")

// Owner is the pod with a session.
type Owner struct {
	UID     [16]byte       // of the pod; a later pod may have the same address
	Address netip.AddrPort // where other replicas reach it
}

// ParseUID reads the UID of a pod as Kubernetes writes it.
func ParseUID(text string) (uid [16]byte, err error) {
	decoded, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(decoded) != len(uid) {
		return uid, fmt.Errorf("%q is not a UID", text)
	}
	return [16]byte(decoded), nil
}

// Codec makes and reads ids.
type Codec struct {
	current key
	keys    map[[keyIDSize]byte]key
}

type key struct {
	id    [keyIDSize]byte
	index int // among the keys of New
	aead  cipher.AEAD
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
		k.index = i
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
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return key{}, err
	}
	k := key{aead: aead}
	digest := sha256.Sum256(append([]byte("slipway session key id\x00"), secret...))
	copy(k.id[:], digest[:])
	return k, nil
}

// Mint returns a new id for a session of the owner.
func (c *Codec) Mint(owner Owner) string {
	raw := make([]byte, headSize, binarySize)
	raw[0] = formatVersion
	copy(raw[1:], c.current.id[:])

	var plain [sealedSize]byte
	copy(plain[:], owner.UID[:])
	address := owner.Address.Addr().As16()
	copy(plain[16:], address[:])
	binary.BigEndian.PutUint16(plain[32:], owner.Address.Port())
	_, _ = rand.Read(plain[34:]) // never fails: without randomness the program ends

	raw = c.current.aead.Seal(raw, nil, plain[:], raw) //nolint:gosec // this AEAD makes a random nonce itself
	return base64.RawURLEncoding.EncodeToString(raw)
}

// Parse returns the owner that an id names, or ErrInvalid. It does not read a text of
// another length.
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
	plain, err := k.aead.Open(nil, nil, raw[headSize:], raw[:headSize])
	if err != nil {
		return Owner{}, ErrInvalid
	}
	address := netip.AddrFrom16([16]byte(plain[16:32])).Unmap()
	return Owner{
		UID:     [16]byte(plain[:16]),
		Address: netip.AddrPortFrom(address, binary.BigEndian.Uint16(plain[32:])),
	}, nil
}
