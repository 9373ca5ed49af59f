// Package sessionid makes ids that name the pod with a session, or with the state of a request. Only programs
// with the server's key can read the name.
//
// A client can neither guess, forge nor alter an id, and learns nothing about the cluster from it.
// Every replica can read from an id which pod has the session, so that replicas need no shared store
// of sessions. The format, base64url without padding:
//
//	version   1 byte
//	key id    4 bytes, so that keys can be rotated
//	nonce    12 bytes, random
//	sealed   AES-256-GCM: owner UID 16, owner address 16 + port 2, and more
//	tag      16 bytes; version and key id are authenticated too
//
// Version 1 is a session: 16 random bytes are sealed besides. Version 2 is the owner of a state, see States. Version 3 is a
// session that its server keeps, see Kept.
package sessionid

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

const (
	versionSession = 1
	versionState   = 2
	versionKept    = 3

	keyIDSize  = 4
	headSize   = 1 + keyIDSize
	nonceSize  = 12
	ownerSize  = 16 + 16 + 2
	randomSize = 16
	tagSize    = 16

	overhead    = headSize + nonceSize + tagSize
	sessionSize = overhead + ownerSize + randomSize
	stateSize   = overhead + ownerSize

	// KeySize is the size of a key in bytes.
	KeySize = 32
)

// Length is the length of the id of a session, unless the server keeps it.
var Length = base64.RawURLEncoding.EncodedLen(sessionSize)

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

func (o Owner) append(to []byte) []byte {
	address := o.Address.Addr().As16()
	to = append(append(to, o.UID[:]...), address[:]...)
	return binary.BigEndian.AppendUint16(to, o.Address.Port())
}

// readOwner reads what append has written.
func readOwner(plain []byte) Owner {
	address := netip.AddrFrom16([16]byte(plain[16:32])).Unmap()
	return Owner{
		UID:     [16]byte(plain[:16]),
		Address: netip.AddrPortFrom(address, binary.BigEndian.Uint16(plain[32:])),
	}
}

// Codec makes and reads the ids of sessions.
type Codec struct{ ring }

// New returns a Codec that makes ids with the first key and reads those of all.
func New(keys ...[]byte) (*Codec, error) {
	ring, err := newRing(keys)
	if err != nil {
		return nil, fmt.Errorf("make session id codec: %w", err)
	}
	return &Codec{ring}, nil
}

// Mint returns a new id for a session of the owner.
func (c *Codec) Mint(owner Owner) string {
	var room [ownerSize + randomSize]byte
	plain := owner.append(room[:0])[:len(room)]
	_, _ = rand.Read(plain[ownerSize:]) // never fails: without randomness the program ends
	return c.seal(versionSession, plain, nil)
}

// Parse returns the owner that the id of a session names, or ErrInvalid.
func (c *Codec) Parse(id string) (Owner, error) {
	if len(id) != Length {
		kept, err := c.ParseKept(id)
		return kept.Owner, err
	}
	plain, err := c.open(versionSession, id, nil)
	if err != nil {
		return Owner{}, ErrInvalid
	}
	return readOwner(plain), nil
}
