package roster

import (
	"net/netip"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// Candidate is a pod that clients may be led to.
type Candidate struct {
	adapterapi.PeerPod
	Owner sessionid.Owner // the UID and the address
}

// Ready are the pods of one list that take requests of other pods and are ready for clients. It never changes.
type Ready struct{ Pods []Candidate }

func readyOf(pods map[[16]byte]adapterapi.PeerPod) *Ready {
	ready := &Ready{}
	for uid, pod := range pods {
		address, err := netip.ParseAddrPort(pod.Address)
		if err == nil && pod.Ready && !pod.Terminating && !pod.Doubted {
			ready.Pods = append(ready.Pods, Candidate{pod, sessionid.Owner{UID: uid, Address: address}})
		}
	}
	return ready
}

// Ready returns the pods of the list that are ready, this one among them. It returns the same pointer for as long as the
// list stays the same, and nil without a list that counts.
func (r *Roster) Ready() *Ready {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.countsLocked() {
		return nil
	}
	return r.ready
}

// Candidates returns the pods at which sessions may begin: those of Ready other than this one.
func (r *Roster) Candidates(self [16]byte) []Candidate {
	ready := r.Ready()
	if ready == nil {
		return nil
	}
	var found []Candidate
	for i := range ready.Pods {
		if ready.Pods[i].Owner.UID != self {
			found = append(found, ready.Pods[i])
		}
	}
	return found
}

// Entry returns what the list says of one pod. It returns false without a list that counts, and if that does not
// have the pod.
func (r *Roster) Entry(pod [16]byte) (adapterapi.PeerPod, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, has := r.pods[pod]
	return known, has && r.countsLocked()
}

// countsLocked reports whether there is a list whose lease is not over.
func (r *Roster) countsLocked() bool { return r.pods != nil && r.now().Sub(r.renewed) <= lease }
