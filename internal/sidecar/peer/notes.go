package peer

import (
	"sync"
	"time"
)

const (
	// mostNotes bounds the pods with a note. A pod whose note is forgotten costs one more attempt to connect.
	mostNotes = 4096
	// noteLapse is after how long without another attempt the silence of a pod begins anew: it may have been
	// there in between.
	noteLapse = 2 * deadAfter
)

// notes remember which pods cannot be reached, and which are gone.
type notes struct {
	mu    sync.Mutex
	pods  map[[16]byte]note
	order [][16]byte // oldest first; may have pods without a note
}

type note struct {
	gone        bool      // another pod has its address, and pods keep theirs as long as they live
	silentSince time.Time // unless it is gone
	lastTried   time.Time
}

func newNotes() *notes { return &notes{pods: map[[16]byte]note{}} }

// isGone reports whether the pod will never answer again.
func (n *notes) isGone(pod [16]byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods[pod].gone
}

// answered forgets that a pod did not answer.
func (n *notes) answered(pod [16]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods, pod)
}

// left remembers that a pod is gone.
func (n *notes) left(pod [16]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.writeLocked(pod, note{gone: true})
}

// silent remembers that a pod did not answer, and returns for how long it has not.
func (n *notes) silent(pod [16]byte, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	known, has := n.pods[pod]
	if !has || now.Sub(known.lastTried) > noteLapse {
		known = note{gone: known.gone, silentSince: now}
	}
	known.lastTried = now
	n.writeLocked(pod, known)
	return now.Sub(known.silentSince)
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
