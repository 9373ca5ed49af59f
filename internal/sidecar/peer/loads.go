package peer

import (
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
)

const (
	// reportLapse is how long the report of a pod counts for more than the list, if the list says nothing new of it. The
	// manager asks each pod more often than that.
	reportLapse = 30 * time.Second
	// failedLapse is how long no session is sent to a pod after an attempt to connect to it has failed.
	failedLapse = 5 * time.Second
	// refillLapse is how long a pod that has reported its last spare as taken counts as one without, if the list says that
	// it keeps some.
	refillLapse = 5 * time.Second
)

// loads are how full other pods are: by the list, by what they have said since, and by what this pod has sent
// them.
type loads struct {
	mu   sync.Mutex
	pods map[[16]byte]*known
}

// known is what this pod knows of another one besides the list.
type known struct {
	said   Load
	at     time.Time // of said; zero if it has said nothing
	listed Load      // what the list said then
	sent   int64     // sessions that this pod has sent there, and has no answer about
	failed time.Time // when a connection to it last failed
}

// of returns the pods at which sessions may begin now, with their loads. It forgets all others.
func (l *loads) of(candidates []roster.Candidate, now time.Time) []other {
	l.mu.Lock()
	defer l.mu.Unlock()
	pods := make(map[[16]byte]*known, len(candidates))
	found := make([]other, 0, len(candidates))
	for i := range candidates {
		c := &candidates[i]
		k := l.pods[c.Owner.UID]
		if k == nil {
			found = append(found, other{Candidate: *c, load: listed(c)})
			continue
		}
		pods[c.Owner.UID] = k
		if now.Sub(k.failed) >= failedLapse {
			found = append(found, other{*c, k.correct(listed(c), now), k.sent})
		}
	}
	for uid, k := range l.pods {
		if k.sent > 0 { // its answer will come
			pods[uid] = k
		}
	}
	l.pods = pods
	return found
}

func listed(c *roster.Candidate) Load {
	return Load{Sessions: c.Sessions, Limit: c.Limit, Spares: c.Spares}
}

func (k *known) correct(load Load, now time.Time) Load {
	since := now.Sub(k.at)
	if k.at.IsZero() || k.listed != load || since >= reportLapse {
		return load
	}
	said := k.said
	if since >= refillLapse {
		said.Spares = max(said.Spares, load.Spares)
	}
	return said
}

// send counts a session that is sent to a pod. If it must find room, and the pod will be full for all that is known
// now, send returns false.
func (l *loads) send(to *other, mustFindRoom bool, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.pods[to.Owner.UID]
	if k == nil {
		k = &known{}
	}
	if load := k.correct(listed(&to.Candidate), now); mustFindRoom && load.Sessions+k.sent >= max(load.Limit, 1) {
		return false
	}
	k.sent++
	l.pods[to.Owner.UID] = k
	return true
}

// answered ends what send has begun. said is the load that the pod has reported, or nil.
func (l *loads) answered(from *other, said *Load, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.pods[from.Owner.UID]
	k.sent--
	if said != nil {
		k.said, k.at, k.listed, k.failed = *said, now, listed(&from.Candidate), time.Time{}
	}
}

// fail ends what send has begun, for a pod that could not be connected to. That the newcomer had too little time says
// nothing of the pod.
func (l *loads) fail(to *other, outcome relay.Outcome, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.pods[to.Owner.UID]
	k.sent--
	if outcome != relay.Late {
		k.failed = now
	}
}
