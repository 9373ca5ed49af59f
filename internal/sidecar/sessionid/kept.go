package sessionid

import (
	"encoding/base64"
	"encoding/binary"
	"time"
)

// Kept is a session that its server keeps, so that it outlives the adapter. The id has all that another adapter process in the
// same pod needs to go on with it.
type Kept struct {
	Owner Owner
	// Process is of the adapter process that the session was opened with.
	Process [16]byte
	// Principal stands for whose the session is.
	Principal [16]byte
	Began     time.Time // to the millisecond
	Revision  string    // that client and server agreed on
	ServerID  string    // which the server alone knows the session by
}

const (
	mostRevision = 16
	mostServerID = 256
	// keptSize is how long a Kept without texts is. Each text has one byte before it, or two.
	keptSize = ownerSize + 16 + 16 + 8 + 1 + 2
)

// LongestID is how long an id can be.
var LongestID = base64.RawURLEncoding.EncodedLen(overhead + keptSize + mostRevision + mostServerID)

// MintKept returns a new id for a session that the server keeps. It returns false if the server's id or the revision
// is too long for that.
func (c *Codec) MintKept(k *Kept) (string, bool) {
	if len(k.Revision) > mostRevision || len(k.ServerID) > mostServerID || k.ServerID == "" {
		return "", false
	}
	var room [largest]byte
	plain := append(append(k.Owner.append(room[:0]), k.Process[:]...), k.Principal[:]...)
	plain = binary.BigEndian.AppendUint64(plain, uint64(k.Began.UnixMilli()))
	plain = append(append(plain, byte(len(k.Revision))), k.Revision...)                          //nolint:gosec // see above
	plain = append(binary.BigEndian.AppendUint16(plain, uint16(len(k.ServerID))), k.ServerID...) //nolint:gosec // see above
	return c.seal(versionKept, plain, nil), true
}

// ParseKept reads an id that MintKept has made. The error is ErrInvalid.
func (c *Codec) ParseKept(id string) (Kept, error) {
	if len(id) > LongestID || len(id) == Length {
		return Kept{}, ErrInvalid
	}
	plain, err := c.open(versionKept, id, nil)
	if err != nil || len(plain) < keptSize {
		return Kept{}, ErrInvalid
	}
	k := Kept{Owner: readOwner(plain)}
	rest := plain[ownerSize:]
	k.Process, k.Principal = [16]byte(rest), [16]byte(rest[16:])
	k.Began = time.UnixMilli(int64(binary.BigEndian.Uint64(rest[32:]))) //nolint:gosec // as MintKept has written it
	rest = rest[40:]
	revision := int(rest[0])
	if len(rest) < 1+revision+2 {
		return Kept{}, ErrInvalid
	}
	k.Revision, rest = string(rest[1:1+revision]), rest[1+revision:]
	if int(binary.BigEndian.Uint16(rest)) != len(rest)-2 {
		return Kept{}, ErrInvalid
	}
	k.ServerID = string(rest[2:])
	return k, nil
}
