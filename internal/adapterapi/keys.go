package adapterapi

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// KeySize is the size of a key, and of what is derived from it, in bytes.
const KeySize = 32

// Key is a secret of one MCPServer. The zero value is no key.
type Key struct{ secret [KeySize]byte }

// NewKey makes a key.
func NewKey() Key {
	var k Key
	_, _ = rand.Read(k.secret[:]) // never fails
	return k
}

// ParseKey reads a key in hexadecimal. The error does not repeat the text.
func ParseKey(text string) (Key, error) {
	var k Key
	if len(text) != hex.EncodedLen(KeySize) {
		return Key{}, fmt.Errorf("a key has %d bytes in hexadecimal", KeySize)
	}
	if _, err := hex.Decode(k.secret[:], []byte(text)); err != nil {
		return Key{}, errors.New("a key is in hexadecimal")
	}
	return k, nil
}

// Encode is the key in hexadecimal, for the Secret and for nothing else.
func (k Key) Encode() string { return hex.EncodeToString(k.secret[:]) }

// String does not tell the key, so that no log does.
func (k Key) String() string { return "key " + k.ID() }

// GoString does not either.
func (k Key) GoString() string { return k.String() }

// ID names the key without telling it.
func (k Key) ID() string { return hex.EncodeToString(k.Derive(useID)[:keyIDSize]) }

const keyIDSize = 8 // bytes

// Use is what a derived key is for.
type Use string

// The uses. A label never changes its meaning; what changes gets a new one.
const (
	UseSessionIDs Use = "session ids v1" // the adapter's, to seal who owns a session
	UseReferences Use = "references v1"  // the manager's, for digests of Secrets that say nothing to others
	UseCatalog    Use = "catalog v1"     // requests to and answers of the admin port
	UseProbe      Use = "probe v1"       // the manager's requests to the client port
	UseSettings   Use = "settings v1"    // the manager's pushes to the admin port, and their answers
	UseAccess     Use = "access v1"      // the signature of access documents, the manager's pushes of them, and their answers
	UseSessions   Use = "sessions v1"    // requests of users to list and end sessions, and their answers
	UseStates     Use = "states v2"      // the adapter's, to seal who has the state of a request, and to whom it gave the state
	UseEventIDs   Use = "event ids v1"   // the adapter's, to prove to whom it gave the place in a stream that a client can resume it from
	UsePeers      Use = "peer ca v1"     // the seed of the CA whose certificates the pods of a server show each other
	UsePeerList   Use = "peer list v1"   // the manager's pushes of the list of pods, and their answers

	useID Use = "key id v1"
)

// Derive is the key for one use.
func (k Key) Derive(use Use) []byte {
	derived, err := hkdf.Key(sha256.New, k.secret[:], nil, "slipway "+string(use), KeySize)
	if err != nil {
		panic("derive key: " + err.Error()) // only for a length that HKDF cannot have
	}
	return derived
}

// Keyring is all keys of a server that are good at a time. The zero value has none.
type Keyring struct {
	// Current is the one to use.
	Current Key
	// Accepted are others that what is presented may be made with: one that was current
	// before, or will be next.
	Accepted []Key
}

// The entries of the Secret with a server's keys, and the files that an adapter finds it
// mounted as.
const (
	KeysCurrent  = "current"  // one key in hexadecimal
	KeysAccepted = "accepted" // any number of keys, one a line
)

// ParseKeyring reads the two entries of the Secret.
func ParseKeyring(current, accepted string) (Keyring, error) {
	var ring Keyring
	var err error
	if ring.Current, err = ParseKey(strings.TrimSpace(current)); err != nil {
		return Keyring{}, fmt.Errorf("read %s: %w", KeysCurrent, err)
	}
	for line := range strings.FieldsSeq(accepted) {
		key, err := ParseKey(line)
		if err != nil {
			return Keyring{}, fmt.Errorf("read %s: %w", KeysAccepted, err)
		}
		if key != ring.Current {
			ring.Accepted = append(ring.Accepted, key)
		}
	}
	return ring, nil
}

// Equal says whether two rings have the same keys in the same order.
func (r Keyring) Equal(other Keyring) bool { return slices.Equal(r.All(), other.All()) }

// Encode is the two entries of the Secret.
func (r Keyring) Encode() (current, accepted string) {
	var lines strings.Builder
	for _, key := range r.Accepted {
		lines.WriteString(key.Encode() + "\n")
	}
	return r.Current.Encode(), lines.String()
}

// WithCurrent is the ring with another of its keys as the current one. The one that was current is still accepted.
func (r Keyring) WithCurrent(current Key) Keyring {
	others := slices.DeleteFunc(r.All(), func(key Key) bool { return key == current })
	return Keyring{Current: current, Accepted: others}
}

// All are the keys, the current one first.
func (r Keyring) All() []Key { return append([]Key{r.Current}, r.Accepted...) }
