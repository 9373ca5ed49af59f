package session

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
)

// Member is a session in a Registry: a *Session, or a session of an HTTP server that the
// adapter proxies.
type Member interface {
	places.Occupant
	About() *Identity
	// Usage returns what the session does and holds now.
	Usage() Usage
	// Busy reports whether a call is in flight, or the client has not read its answer yet.
	Busy() bool
	// Sweep answers calls that have taken too long.
	Sweep(ctx context.Context, now time.Time)
	// End ends the session. It does not wait for the server. Clients read the reason.
	End(reason error)
	// EndedBy returns why the session ended, or nil while it lasts.
	EndedBy() error
	// OnEnd calls the hook when the session ends, or at once if it has ended.
	OnEnd(hook func())
	// Done returns a channel that is closed when the session has ended and the adapter has told
	// its server.
	Done() <-chan struct{}
}

// Identity identifies a session. The code that opens the session sets it, before other code
// knows the session.
type Identity struct {
	Revision string // the protocol revision that client and server agreed on
	Number   string // in the log
	Owner    *caller.Owner
	Began    time.Time

	client atomic.Pointer[Client]
}

// Client is how the client of a session describes itself.
type Client struct{ Name, Version string }

// Introduce records how the client describes itself. Some clients do so after they have opened the
// session.
func (i *Identity) Introduce(client Client) { i.client.Store(&client) }

// Client returns how the client describes itself, or nothing before it has.
func (i *Identity) Client() Client {
	if client := i.client.Load(); client != nil {
		return *client
	}
	return Client{}
}

// Usage is what a session does and holds.
type Usage struct {
	Requests uint64 // of the client, so far
	InFlight int    // requests without an answer
	Held     int64  // bytes of messages
}

// About returns the identity of the session that embeds it.
func (i *Identity) About() *Identity { return i }
