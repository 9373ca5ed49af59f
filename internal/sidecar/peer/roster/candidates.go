package roster

import (
	"net/netip"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// Candidate is a pod at which sessions may begin.
type Candidate struct {
	adapterapi.PeerPod
	Owner sessionid.Owner // the UID and the address
}

// Candidates returns the pods of the list, other than this one, that take requests of other pods and are ready for
// clients. There are none without a list that counts.
func (r *Roster) Candidates(self [16]byte) []Candidate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.countsLocked() {
		return nil
	}
	var found []Candidate
	for uid, pod := range r.pods {
		address, err := netip.ParseAddrPort(pod.Address)
		if uid != self && err == nil && pod.Ready && !pod.Terminating && !pod.Doubted {
			found = append(found, Candidate{pod, sessionid.Owner{UID: uid, Address: address}})
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
