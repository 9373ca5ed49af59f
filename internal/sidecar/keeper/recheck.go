package keeper

import (
	"context"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
)

// rechecks are far apart, because each one starts a process beside one that works.
var rechecks = mux.Pace{First: 5 * time.Second, Last: 5 * time.Minute}

// recheck starts fresh servers from time to time and asks them to initialize, while the keeper
// uses a server without a session. Servers with sessions may also refuse to initialize, for example
// while a license server is away, so one refusal does not prove that a server has no sessions.
type recheck struct {
	keeper  *Keeper
	count   int              // of checks, with the next one
	due     <-chan time.Time // nil if there is no need for a check
	found   chan attempt     // receives the outcome of a check
	running sync.WaitGroup
}

func (k *Keeper) newRecheck(a attempt) *recheck {
	r := &recheck{keeper: k, found: make(chan attempt)}
	if a.how == byDiscover && k.opening != byDiscover && !k.options.Pinned {
		r.schedule()
	}
	return r
}

func (r *recheck) schedule() {
	r.count++
	r.due = time.After(rechecks.After(r.count))
}

// start asks a fresh server to initialize. It does not wait for the outcome.
func (r *recheck) start(ctx context.Context) {
	r.due = nil
	r.running.Go(func() {
		other := r.keeper.start(ctx, byInitialize, false)
		select {
		case r.found <- other:
		case <-ctx.Done():
			if other.err == nil {
				other.session.Close()
				other.connection.Close()
			}
		}
	})
}

// consider takes the outcome of a check. It returns the server if that has a session.
func (r *recheck) consider(other attempt) *attempt {
	switch {
	case other.err == nil:
		return &other
	case other.certain: // which holds for later servers, too
		r.keeper.opening = byDiscover
	default:
		r.schedule()
	}
	return nil
}
