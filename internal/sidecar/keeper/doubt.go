package keeper

import (
	"context"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
)

// doubts is slow, because every look takes a process beside one that works.
var doubts = mux.Pace{First: 5 * time.Second, Last: 5 * time.Minute}

// doubt is whether a server has no sessions that has refused to initialize as those with
// sessions do, too: a licence, or whatever else it needs, may just not have been there.
// While it is kept, fresh ones are asked now and then, ever more seldom.
type doubt struct {
	keeper *Keeper
	ctx    context.Context // of those that are asked
	cancel context.CancelFunc
	looks  int              // the next one included
	due    <-chan time.Time // nil without a doubt
	found  chan attempt     // what came of asking

	asking sync.WaitGroup
}

func (k *Keeper) newDoubt(ctx context.Context, a attempt) *doubt {
	d := &doubt{keeper: k, looks: 1, found: make(chan attempt)}
	d.ctx, d.cancel = context.WithCancel(ctx)
	if a.how == byDiscover && k.opening != byDiscover && !k.options.Pinned {
		d.due = time.After(doubts.After(d.looks))
	}
	return d
}

// look asks a fresh server to initialize, while the other is looked after.
func (d *doubt) look() {
	d.due = nil
	d.asking.Go(func() {
		other := d.keeper.start(d.ctx, byInitialize, false)
		select {
		case d.found <- other:
		case <-d.ctx.Done():
			if other.err == nil {
				other.session.Close()
				other.connection.Close()
			}
		}
	})
}

// consider returns a server that has a session after all.
func (d *doubt) consider(other attempt) *attempt {
	switch {
	case other.err == nil:
		return &other
	case other.certain: // so it is for the ones after it, too
		d.keeper.opening = byDiscover
	default:
		d.looks++
		d.due = time.After(doubts.After(d.looks))
	}
	return nil
}

// end waits until nothing is asked any more.
func (d *doubt) end() {
	d.cancel()
	d.asking.Wait()
}
