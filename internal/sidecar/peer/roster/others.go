package roster

import (
	"net/netip"

	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// Others returns the pods of the last list, other than this one. The lease of the list is of no importance: who connects to
// the pods finds out whether they live.
func (r *Roster) Others(self [16]byte) []sessionid.Owner {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []sessionid.Owner
	for uid, pod := range r.pods {
		if address, err := netip.ParseAddrPort(pod.Address); uid != self && err == nil {
			found = append(found, sessionid.Owner{UID: uid, Address: address})
		}
	}
	return found
}
