package peer

import (
	"slices"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
)

const (
	// mostNotes bounds the pods with a note. A pod whose note is forgotten costs one more attempt to connect.
	mostNotes = 4096
	// noteLapse bounds the time between two failed attempts that count as one silence. After a longer pause, the
	// silence of the pod begins again: the pod may have answered in between. A request waits less than that
	// between its attempts.
	noteLapse = deadAfter / 2
	// goneLapse is how long this pod takes another one for gone before it connects again. Two pods that have
	// not read the same keys yet take each other for strangers.
	goneLapse = 30 * time.Second
)

// notes remember which pods cannot be reached, and which are gone.
type notes struct {
	mu    sync.Mutex
	pods  map[[16]byte]note
	order [][16]byte // oldest first
}

type note struct {
	gone         time.Time // when a stranger had its address, or the list had lost it; pods keep their addresses as long as they live
	unlisted     bool      // it is gone because the list had lost it, which a later list may correct
	failingSince time.Time // the first of the attempts that failed
	silentSince  time.Time // the first of those since the pod's address was last there; zero if it is
	lastTried    time.Time
}

func newNotes() *notes { return &notes{pods: map[[16]byte]note{}} }

// judge returns the verdict on a pod after an attempt to connect that failed, and what it is based on. It remembers the
// attempt.
func (n *notes) judge(pod [16]byte, known knowledge, attempt int, now time.Time) (knowledge, verdict) {
	switch known.contact {
	case stranger:
		n.left(pod, now, false)
	case unreachable:
		known.silence = n.silent(pod, now)
	case unready:
		known.silence = n.stuck(pod, now)
	case refused:
		if known.returns {
			known.silence = n.stuck(pod, now)
		}
	case untried, connected:
	}
	if attempt == 1 { // it may have failed by chance
		known.silence = 0
	}
	verdict := decide(known)
	if verdict == over && known.contact != stranger && known.listing == roster.Removed {
		n.left(pod, now, true)
	}
	return known, verdict
}

// isGone reports whether a stranger had the pod's address a short time ago, or the pod could not be reached and the list
// has lost it.
func (n *notes) isGone(pod [16]byte, listing roster.Standing, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	known, has := n.pods[pod]
	return has && now.Sub(known.gone) < goneLapse && (!known.unlisted || listing == roster.Removed)
}

// isSilent reports whether an attempt to connect to the pod has failed a short time ago, and nothing was heard from its
// address.
func (n *notes) isSilent(pod [16]byte, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	known, has := n.pods[pod]
	return has && !known.silentSince.IsZero() && now.Sub(known.lastTried) < failedLapse
}

// answered forgets that a pod did not answer.
func (n *notes) answered(pod [16]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, has := n.pods[pod]; has {
		delete(n.pods, pod)
		n.order = slices.DeleteFunc(n.order, func(noted [16]byte) bool { return noted == pod })
	}
}

// left remembers that a pod is gone, for as long as it is unlisted if that is why.
func (n *notes) left(pod [16]byte, now time.Time, unlisted bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.writeLocked(pod, note{gone: now, unlisted: unlisted})
}

// silent records that a pod did not answer, and returns for how long.
func (n *notes) silent(pod [16]byte, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.failedLocked(pod, now)
	if known.silentSince.IsZero() {
		known.silentSince = now
	}
	n.writeLocked(pod, known)
	return now.Sub(known.silentSince)
}

// stuck remembers that a pod took no connection, although its address is there, and returns for how long it has
// taken none. That is no silence.
func (n *notes) stuck(pod [16]byte, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.failedLocked(pod, now)
	known.silentSince = time.Time{}
	n.writeLocked(pod, known)
	return now.Sub(known.failingSince)
}

// failedLocked is the note of a pod after one more attempt that failed.
func (n *notes) failedLocked(pod [16]byte, now time.Time) note {
	known, has := n.pods[pod]
	if !has || now.Sub(known.lastTried) > noteLapse {
		known = note{failingSince: now}
	}
	known.lastTried = now
	return known
}

func (n *notes) writeLocked(pod [16]byte, known note) {
	if _, has := n.pods[pod]; !has {
		n.order = append(n.order, pod)
	}
	n.pods[pod] = known
	for len(n.order) > mostNotes {
		delete(n.pods, n.order[0])
		n.order = n.order[1:]
	}
}
