package sessionless

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
)

// primary supervises the process that serves all clients. When it ends, the next request
// starts another one.
type primary struct {
	*mux.Supervisor[*process]
	shared *shared
	era    atomic.Uint32 // an Era
}

func newPrimary(common *shared) *primary {
	pr := &primary{shared: common}
	pr.era.Store(uint32(common.options.Era))
	pr.Supervisor = mux.NewSupervisor(mux.Policy[*process]{
		Start: pr.start, Timeout: common.options.Limits.StartTimeout,
		Dead: (*process).Dead, Retired: (*process).isRetired, Fail: (*process).fail, Harmless: isHarmless,
		Started: common.metrics.Starts.Inc, Failed: common.metrics.StartFailures.Inc, Ended: pr.logEnd,
	})
	return pr
}

// get returns the process, and starts it if there is none.
func (pr *primary) get(ctx context.Context) (*process, error) {
	if pr.foundEra() == Legacy && pr.shared.options.Translate == nil {
		return nil, ErrSessionsOnly
	}
	return pr.Get(ctx)
}

// start starts a process that serves clients. If the era of the server is not known, it
// takes one to find out.
func (pr *primary) start(ctx context.Context) (*process, error) {
	era := pr.foundEra()
	if era == Auto {
		found, usable, err := pr.detect(ctx)
		pr.learn(found)
		if err != nil || usable != nil {
			return usable, err
		}
		era = found.era
	}
	switch {
	case era == Modern:
		return pr.launch(ctx)
	case pr.shared.options.Translate == nil:
		return nil, ErrSessionsOnly
	default:
		return newProcess(nil, pr.shared.options.Translate(), pr.shared, pr.Ended), nil
	}
}

// launch starts a process that has not been sent anything.
func (pr *primary) launch(ctx context.Context) (*process, error) {
	server, err := pr.shared.options.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return newProcess(server, nil, pr.shared, pr.Ended), nil
}

// isHarmless is for ends that are no failure of the process: the adapter did not need it.
func isHarmless(reason error) bool {
	return errors.Is(reason, ErrSessionsOnly) || errors.Is(reason, errIdle)
}

func (pr *primary) logEnd(reason error) {
	pr.shared.options.Log.Info("The server process for clients of the stateless revision ended", "reason", reason.Error())
}

// all is the process that runs, if one does.
func (pr *primary) all() []*process {
	if p, ok := pr.Current(); ok {
		return []*process{p}
	}
	return nil
}

// drain takes no more requests, ends subscriptions, and waits for calls in flight until
// the context ends.
func (pr *primary) drain(ctx context.Context) {
	if p, ok := pr.Close(); ok {
		p.end(ctx)
	}
}
