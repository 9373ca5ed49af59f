package session

import (
	"context"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
)

// Member is a session as its Registry sees it. *Session is one; so is a session that a
// server keeps itself.
type Member interface {
	places.Occupant
	About() *Identity
	// Busy says whether a call is in flight, or its answer has not been read yet.
	Busy() bool
	// Sweep answers calls whose time is up.
	Sweep(ctx context.Context, now time.Time)
	// End ends the session. It does not wait for the server. Clients read the reason.
	End(reason error)
	// EndedBy is why the session ended, or nil if it has not.
	EndedBy() error
	// OnEnd has a function called when the session ends, or now if it has.
	OnEnd(hook func())
	// Done is closed when the session has ended, and its server was told.
	Done() <-chan struct{}
}

// Identity says which session it is. It is set once, before any code but the session's
// opener knows the session.
type Identity struct {
	Revision string // of the protocol, that client and server agreed on
	Number   string // in the log
	Owner    *caller.Owner
	Began    time.Time
}

// About returns the identity of the session that embeds it.
func (i *Identity) About() *Identity { return i }
