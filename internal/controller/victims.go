package controller

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// candidate is a pod that a scale-down could delete.
type candidate struct {
	uid        types.UID
	name       string
	ready      bool
	isNewest   bool // of the template that the Deployment leads to
	generation podGeneration
	created    time.Time
	sessions   int64 // or unknownSessions
}

// unknownSessions is the number of sessions of a pod that has not told it. It counts as full.
const unknownSessions = math.MaxInt32

// chooseVictims returns the n pods that go first: those that are not ready, then those that were chosen before, then
// those of the oldest template, then those with the fewest sessions. A pod that was chosen gets no new sessions, so
// another choice would only have other sessions end.
func chooseVictims(pods []candidate, before map[types.UID]bool, n int) map[types.UID]bool {
	if n <= 0 {
		return nil
	}
	began := map[podGeneration]time.Time{} // of each template, by its oldest pod
	for i := range pods {
		pod := &pods[i]
		if since, ok := began[pod.generation]; !ok || pod.created.Before(since) {
			began[pod.generation] = pod.created
		}
	}
	order := slices.Clone(pods)
	slices.SortFunc(order, func(a, b candidate) int {
		return cmp.Or(
			first(!a.ready, !b.ready),
			first(before[a.uid], before[b.uid]),
			first(!a.isNewest, !b.isNewest),
			began[a.generation].Compare(began[b.generation]),
			cmp.Compare(a.sessions, b.sessions),
			b.created.Compare(a.created), // the youngest, as Kubernetes has it
			cmp.Compare(a.name, b.name),
		)
	})
	victims := map[types.UID]bool{}
	for i := range order[:min(n, len(order))] {
		victims[order[i].uid] = true
	}
	return victims
}

// first orders two items, one of which may be preferred.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// victimBonus makes the deletion cost of every victim less than that of every other pod.
const victimBonus = 1000

// deletionCost is the annotation by which Kubernetes chooses the pods that a smaller number of replicas leaves over:
// those of the lowest cost go, after those that are not ready.
func deletionCost(pod candidate, isVictim bool) string {
	cost := pod.sessions
	if isVictim {
		cost = min(cost, victimBonus-1) - victimBonus
	}
	return strconv.FormatInt(cost, 10)
}
