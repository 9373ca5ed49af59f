package adapterapi

import (
	"encoding/hex"
	"fmt"
	"net/url"
	"time"
)

// SessionsKey lets its holder list and end the sessions of one server, and nothing else. It is
// derived from the server's key, which it does not tell.
type SessionsKey struct{ secret [KeySize]byte }

// SessionsKeyEntry is the entry of the Secret with the SessionsKey, in hexadecimal.
const SessionsKeyEntry = "key"

// Sessions derives the SessionsKey.
func (k Key) Sessions() SessionsKey { return SessionsKey{[KeySize]byte(k.Derive(UseSessions))} }

// ParseSessionsKey reads what Encode returns. The error does not repeat the text.
func ParseSessionsKey(text string) (SessionsKey, error) {
	key, err := ParseKey(text)
	if err != nil {
		return SessionsKey{}, fmt.Errorf("read the key for sessions: %w", err)
	}
	return SessionsKey(key), nil
}

// Encode is the key in hexadecimal, for the Secret and for nothing else.
func (k SessionsKey) Encode() string { return hex.EncodeToString(k.secret[:]) }

// String does not tell the key, so that no log does.
func (SessionsKey) String() string { return "key for sessions" }

// GoString does not either.
func (k SessionsKey) GoString() string { return k.String() }

// Prove proves the holder of the key. The adapter accepts it for subjects of sessions only.
func (k SessionsKey) Prove(subject Subject, now time.Time) (proof Proof, header string) {
	return prove(k.secret[:], subject, now)
}

// SessionsSubject is a request for the list of sessions.
func SessionsSubject(podUID string) Subject {
	return Subject{Use: UseSessions, PodUID: podUID, Method: "GET", Path: PathSessions}
}

// SessionEndSubject is a request to end a session.
func SessionEndSubject(podUID, number string) Subject {
	return Subject{Use: UseSessions, PodUID: podUID, Method: "DELETE", Path: SessionPath(number)}
}

// SessionPath is where the admin port has one session.
func SessionPath(number string) string { return PathSessions + "/" + url.PathEscape(number) }

// SessionList is the answer to a request for the list of sessions.
type SessionList struct {
	Sessions []SessionInfo `json:"sessions"`
}

// SessionInfo describes a session of a client. Its id is a secret of the client, so it is not here.
type SessionInfo struct {
	Number        string `json:"number"` // as in the adapter's log
	Client        string `json:"client,omitempty"`
	ClientVersion string `json:"clientVersion,omitempty"`
	Revision      string `json:"revision,omitempty"`
	// The clocks of adapter and reader may differ, so these are no times.
	AgeSeconds  float64 `json:"ageSeconds"`
	IdleSeconds float64 `json:"idleSeconds"` // since the last message of the client
	Requests    uint64  `json:"requests"`    // of the client, so far
	InFlight    int     `json:"inFlight"`    // requests without an answer
	HeldBytes   int64   `json:"heldBytes"`   // messages that the adapter holds for the session
}
