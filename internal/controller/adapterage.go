package controller

import (
	"fmt"
	"regexp"
	"strconv"
)

// maxSkew is by how many minor versions the adapter of a pod may be older than the manager.
const maxSkew = 2

// release is a version that was released: development has others, which say nothing of age.
var release = regexp.MustCompile(`^v(\d+)\.(\d+)\.\d+$`)

// isTooOld says whether an adapter is older than the manager talks to. It is not if either
// version is no release.
func isTooOld(adapter, manager string) bool {
	old, now := release.FindStringSubmatch(adapter), release.FindStringSubmatch(manager)
	if old == nil || now == nil {
		return false
	}
	number := func(digits string) int {
		n, _ := strconv.Atoi(digits) // the pattern has digits only; one that overflows is large
		return n
	}
	if oldMajor, major := number(old[1]), number(now[1]); oldMajor != major {
		return oldMajor < major
	}
	return number(now[2])-number(old[2]) > maxSkew
}

// warnOfOldAdapter warns once of an adapter that is older than the manager supports.
func (r *Reconciler) warnOfOldAdapter(s *state) {
	if !isTooOld(s.current.AdapterVersion, r.Adapter.Version) {
		s.unwarn(reasonAdapterOld)
		return
	}
	r.warnOnce(s, reasonAdapterOld, actionReconcile, fmt.Sprintf("the pods have adapter %s, which is more than %d minor versions older than the manager, %s: "+
		"set spec.rollout.onOperatorUpgrade to Restart, or give the annotation mcp.slipway.dev/refresh a new value", s.current.AdapterVersion, maxSkew, r.Adapter.Version))
}
