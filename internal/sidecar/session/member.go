package session

import (
	"context"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
)

// Member is a session in a Registry: a *Session, or a session of an HTTP server that the
// adapter proxies.
type Member interface {
	places.Occupant
	About() *Identity
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
}

// About returns the identity of the session that embeds it.
func (i *Identity) About() *Identity { return i }
