package controller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-mcp/slipway/internal/prober"
)

// tellOfRefusals says that clients were refused because all sessions of a pod were in use.
func (r *Reconciler) tellOfRefusals(s *state) {
	more := s.memory.refusedSince(s.results)
	for i := range s.pods {
		pod := &s.pods[i]
		if count := more[pod.UID]; count > 0 && !isDeleted(pod) {
			r.Events.Eventf(s.server, pod, corev1.EventTypeWarning, reasonSessionsFull, actionProbe,
				"pod %s had no session for a client, %s: each of its %d sessions was in use, or had been a moment before; "+
					"spec.session.maxPerPod says how many there may be", pod.Name, times(count), s.results[pod.UID].Sessions.Limit)
		}
	}
}

func times(count uint64) string {
	if count == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", count)
}

// refusedSince is how many refusals each pod counts that were not told yet. What a pod counted before
// this manager knew it is no news.
func (m *memory) refusedSince(results map[types.UID]prober.Result) map[types.UID]uint64 {
	now, more := map[types.UID]uint64{}, map[types.UID]uint64{}
	for pod, result := range results {
		before, known := m.refused[pod]
		if result.Report == nil { // it was not asked yet
			if known {
				now[pod] = before
			}
			continue
		}
		now[pod] = result.Sessions.Refused
		// A restarted adapter counts from 0.
		if known && now[pod] > before {
			more[pod] = now[pod] - before
		}
	}
	m.refused = now
	return more
}
