package adapterapi

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxOtherKeys bounds how many keys an adapter reports beside the current one. A rotation needs one.
const maxOtherKeys = 16

// KeyUse says which keys an adapter goes by, as HeaderKeys carries it. All keys are named by their ids.
type KeyUse struct {
	// Current is the key that it seals and signs with.
	Current string
	// Others are the other keys that it accepts, in the order of their ids.
	Others []OtherKey
}

// OtherKey is a key that an adapter accepts, and does not seal or sign with.
type OtherKey struct {
	ID string
	// Sessions is how many sessions of clients are open whose ids this key has sealed, or may have.
	Sessions int64
}

// Accepts says whether the adapter accepts the key.
func (k KeyUse) Accepts(id string) bool {
	return k.Current == id || slices.ContainsFunc(k.Others, func(other OtherKey) bool { return other.ID == id })
}

// Uses says whether the adapter mints with the key, or has sessions of it.
func (k KeyUse) Uses(id string) bool {
	return k.Current == id || slices.ContainsFunc(k.Others, func(other OtherKey) bool { return other.ID == id && other.Sessions > 0 })
}

func (k KeyUse) String() string {
	parts := []string{k.Current}
	for _, other := range k.Others {
		parts = append(parts, other.ID+"="+strconv.FormatInt(other.Sessions, 10))
	}
	return strings.Join(parts, ",")
}

// ParseKeyUse reads what String returns. Counts have at most 40 bits, as those of Sessions have.
func ParseKeyUse(text string) (KeyUse, error) {
	current, rest, more := strings.Cut(text, ",")
	use := KeyUse{Current: current}
	if !isKeyID(current) {
		return KeyUse{}, errors.New("read use of keys: the current key is not the id of a key")
	}
	for more {
		var other string
		other, rest, more = strings.Cut(rest, ",")
		id, count, _ := strings.Cut(other, "=")
		sessions, err := strconv.ParseUint(count, 10, 40)
		switch {
		case !isKeyID(id):
			return KeyUse{}, errors.New("read use of keys: not the id of a key")
		case err != nil:
			return KeyUse{}, fmt.Errorf("read use of keys: %w", err)
		case len(use.Others) == maxOtherKeys:
			return KeyUse{}, fmt.Errorf("read use of keys: more than %d keys beside the current one", maxOtherKeys)
		}
		use.Others = append(use.Others, OtherKey{id, int64(sessions)})
	}
	return use, nil
}

// isKeyID says whether a text can be what Key.ID returns.
func isKeyID(text string) bool {
	id, err := hex.DecodeString(text)
	return err == nil && len(id) == keyIDSize
}
