package peer

import (
	"bytes"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// home is a pod that keeps state for groups of callers: what a server with sessions remembers of clients that have none.
type home struct {
	owner  sessionid.Owner
	digest uint64 // of the UID
}

// homes are the pods among which groups are spread.
//
// Each group ranks all homes in an order of its own, by weights that follow from nothing but the names of the group and
// of the home (rendezvous hashing). So all pods with the same list agree, and a home that comes or goes moves only those
// groups that rank it first.
type homes []home

// homesOf returns the pods at which sessions should begin: those of the lowest rank that there are.
func homesOf(ready []roster.Candidate) homes {
	lowest := ranks
	for i := range ready {
		lowest = min(lowest, rankOf(&ready[i]))
	}
	var found homes
	for i := range ready {
		if pod := &ready[i]; rankOf(pod) == lowest {
			found = append(found, home{pod.Owner, digestOf(pod.Owner.UID[:])})
		}
	}
	return found
}

func rankOf(pod *roster.Candidate) rank {
	o := other{Candidate: *pod}
	return o.rank()
}

// next returns the home that a group ranks after another one. It returns the first if that is nil, and nil after the last.
func (h homes) next(group uint64, after *home) *home {
	var found *home
	for i := range h {
		one := &h[i]
		if (after == nil || after.isBefore(one, group)) && (found == nil || one.isBefore(found, group)) {
			found = one
		}
	}
	return found
}

func (h *home) isBefore(other *home, group uint64) bool {
	ours, theirs := mixed(group^h.digest), mixed(group^other.digest)
	if ours == theirs {
		return bytes.Compare(h.owner.UID[:], other.owner.UID[:]) < 0
	}
	return ours > theirs
}

// digestOf is FNV-1a. Pods of all versions must agree on it.
func digestOf[T string | []byte](text T) uint64 {
	digest := uint64(14695981039346656037)
	for i := range len(text) {
		digest = (digest ^ uint64(text[i])) * 1099511628211
	}
	return digest
}

// mixed spreads each bit over all. It is the last step of MurmurHash3.
func mixed(bits uint64) uint64 {
	bits = (bits ^ bits>>33) * 0xff51afd7ed558ccd
	bits = (bits ^ bits>>33) * 0xc4ceb9fe1a85ec53
	return bits ^ bits>>33
}
