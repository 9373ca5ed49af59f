package peer

import (
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
)

// contact is how the last attempt to connect to a pod ended.
type contact int

const (
	untried     contact = iota
	connected           // the pod proved that it is the owner
	refused             // the address is there, and nothing listens
	stranger            // something else has the address
	unreachable         // no answer in time, or no way there
	unready             // the address is there, but the pod takes no connection: it has too many, or is slow
)

// knowledge is all that counts for a verdict.
type knowledge struct {
	listing roster.Standing
	contact contact
	// silence is how long the pod has been unreachable, or unready, or has refused connections for a session that returns.
	silence time.Duration
	// returns says that the session outlives a restart of the adapter.
	returns bool
}

// verdict says what becomes of a request whose session another pod has.
type verdict int

const (
	try  verdict = iota // connect to the owner, and pass the request on
	wait                // the owner may live: try again for a while, and then answer 503
	over                // the session is over: answer 404
)

// deadAfter is how long a pod is unreachable before its sessions count as over, if the manager does not
// reach it either, or has not told.
const deadAfter = 15 * time.Second

// stuckAfter is the same for a pod that accepts no connection, although its address exists. Even an overloaded pod
// accepts one within that time. A service mesh proxy accepts connections in place of the pod, and may never stop
// doing so after the pod is gone.
const stuckAfter = 2 * time.Minute

// decide returns the verdict on a session's owner. Many clients give up for good on 404, so a session is over
// only if its pod cannot have it any more, or if the pod has been silent for deadAfter or stuck for stuckAfter and the
// manager does not say that it lives. A pod that the list has lost is tried nevertheless: a manager that has just become
// the leader may not know the youngest pods yet, and a pod that was deleted by force may still run.
func decide(k knowledge) verdict {
	switch {
	case k.contact == untried, k.contact == connected:
		return try
	case k.contact == stranger, k.listing == roster.Removed:
		return over
	case k.contact == refused && !k.returns:
		return over // the sessions of an adapter end with it, and a new one has none of them
	case k.contact == refused && k.listing == roster.Unknown && k.silence >= stuckAfter:
		return over // no list names the pod, so something else may have the address
	case k.contact == refused, k.listing == roster.Listed, k.silence < deadAfter, k.contact == unready && k.silence < stuckAfter:
		return wait
	}
	return over
}
