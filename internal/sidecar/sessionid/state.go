package sessionid

import (
	"encoding/base64"
	"errors"
	"fmt"
)

// ErrOther says that a key of the server has made a seal, but not for this content.
var ErrOther = errors.New("not the seal of this state")

// Digest stands for what a state is, and whose.
type Digest [32]byte

// StateLength is the length of the seal that names the owner of a state.
var StateLength = base64.RawURLEncoding.EncodedLen(stateSize)

// States makes and reads the seals that name the owners of states. The state of a request can be long, so it is
// no part of its seal. The seal opens only together with the digest of the state.
type States struct{ ring }

// NewStates returns States that make seals with the first key and read those of all.
func NewStates(keys ...[]byte) (*States, error) {
	ring, err := newRing(keys)
	if err != nil {
		return nil, fmt.Errorf("make state codec: %w", err)
	}
	return &States{ring}, nil
}

// Seal returns a seal that names the owner of the state with this digest.
func (s *States) Seal(owner Owner, of *Digest) string {
	var room [ownerSize]byte
	return s.seal(versionState, owner.append(room[:0]), of[:])
}

// Open returns the owner of the state with this digest. The error is ErrOther if the seal was made for another
// state or caller, or was altered, and ErrInvalid if no key of the server has made it.
func (s *States) Open(seal string, of *Digest) (Owner, error) {
	if len(seal) != StateLength {
		return Owner{}, ErrInvalid
	}
	plain, err := s.open(versionState, seal, of[:])
	switch {
	case errors.Is(err, errAltered):
		return Owner{}, ErrOther
	case err != nil:
		return Owner{}, err
	}
	return readOwner(plain), nil
}
