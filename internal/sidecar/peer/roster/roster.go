// Package roster keeps the manager's list of the pods of a server, for as long as the manager renews it.
//
// The list only makes things faster. Sessions name their pods themselves, so an adapter without a list, or with one that
// is out of date, still finds them.
package roster

import (
	"fmt"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/document"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

const (
	// lease is how long a list counts after the manager has last pushed or renewed it.
	lease = 30 * time.Second
	// mostRemoved bounds the pods that are remembered as removed.
	mostRemoved = 4096
)

// Standing is what the list says of a pod.
type Standing int

// The standings.
const (
	Unknown Standing = iota // no list that counts has named the pod
	Listed                  // the pod is there
	Doubted                 // the pod is there, but the manager cannot reach it either
	Removed                 // a list had the pod, and a later one has not; or a list says that the pod is gone
)

// Roster is the list. It is safe for concurrent use.
type Roster struct {
	now func() time.Time

	mu      sync.Mutex
	state   adapterapi.AccessState // which list is in effect
	renewed time.Time
	pods    map[[16]byte]adapterapi.PeerPod
	ready   *Ready // of pods
	removed map[[16]byte]bool
	order   [][16]byte    // of removed, oldest first
	next    chan struct{} // closed by the next list; nil unless something waits for it
}

// New returns a Roster without a list.
func New() *Roster { return NewAt(time.Now) }

// NewAt is New with another clock, for tests that go through many orders of events.
func NewAt(now func() time.Time) *Roster {
	return &Roster{now: now, state: adapterapi.AccessState{Version: adapterapi.PeersVersion}, removed: map[[16]byte]bool{}}
}

// Take puts a list into effect. Its error wraps document.ErrOlder for a list of a former leader, or one that another
// list has overtaken on its way.
func (r *Roster) Take(text []byte) error {
	list, err := adapterapi.DecodePeers(text)
	if err != nil {
		return err
	}
	pods := make(map[[16]byte]adapterapi.PeerPod, len(list.Pods))
	for i, pod := range list.Pods {
		uid, err := sessionid.ParseUID(pod.UID)
		if err != nil {
			return fmt.Errorf("take list of pods: pods[%d].uid: %w", i, err)
		}
		pods[uid] = pod
	}
	gone := make([][16]byte, len(list.Gone))
	for i, text := range list.Gone {
		if gone[i], err = sessionid.ParseUID(text); err != nil {
			return fmt.Errorf("take list of pods: gone[%d]: %w", i, err)
		}
	}
	ready := readyOf(pods)
	r.mu.Lock()
	defer r.mu.Unlock()
	if list.Generation < r.state.Generation {
		return fmt.Errorf("take list of pods: %w: generation %d after %d", document.ErrOlder, list.Generation, r.state.Generation)
	}
	for uid := range r.pods {
		if _, still := pods[uid]; !still && !list.Partial {
			r.removeLocked(uid)
		}
	}
	for _, uid := range gone {
		r.removeLocked(uid)
	}
	for uid := range pods {
		delete(r.removed, uid) // the list before was made without knowing of it
	}
	r.state.Generation, r.state.Digest = list.Generation, adapterapi.SettingsDigest(text)
	r.pods, r.ready, r.renewed = pods, ready, r.now()
	r.announceLocked()
	return nil
}

func (r *Roster) removeLocked(pod [16]byte) {
	if r.removed[pod] {
		return
	}
	r.removed[pod] = true
	r.order = append(r.order, pod)
	for len(r.order) > mostRemoved {
		delete(r.removed, r.order[0])
		r.order = r.order[1:]
	}
}

// Renew has the list count for another while, if it is the one of this generation.
func (r *Roster) Renew(generation int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.Digest != "" && r.state.Generation == generation {
		r.renewed = r.now()
	}
}

// State returns which list is in effect.
func (r *Roster) State() adapterapi.AccessState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// Age returns how long ago the manager pushed or renewed the list; 0 if there is none.
func (r *Roster) Age() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.renewed.IsZero() {
		return 0
	}
	return r.now().Sub(r.renewed)
}

// Standing returns what the list says of a pod. No pod comes back under its UID, so a pod that a list has removed stays
// removed when the lease is over.
func (r *Roster) Standing(pod [16]byte) Standing {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.removed[pod] {
		return Removed
	}
	known, has := r.pods[pod]
	switch {
	case !has || r.now().Sub(r.renewed) > lease:
		return Unknown
	case known.Doubted:
		return Doubted
	default:
		return Listed
	}
}
