package peer

import (
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
)

func TestNotes(t *testing.T) {
	n, now, pod := newNotes(), time.Unix(1000, 0), [16]byte{1}
	silences := func(want ...time.Duration) {
		t.Helper()
		for _, want := range want {
			if got := n.silent(pod, now); got != want {
				t.Errorf("silent for %s, want %s", got, want)
			}
			now = now.Add(5 * time.Second)
		}
	}
	silences(0, 5*time.Second, 10*time.Second, 15*time.Second)
	n.answered(pod)
	silences(0, 5*time.Second)
	now = now.Add(noteLapse) // the pod may have been there in between
	silences(0, 5*time.Second)
	if got := n.stuck(pod, now); got != 10*time.Second {
		t.Errorf("stuck for %s", got)
	}
	now = now.Add(5 * time.Second)
	silences(0, 5*time.Second) // the pod was there in between
	if got := n.stuck(pod, now); got != 25*time.Second {
		t.Errorf("stuck for %s", got)
	}
	if n.isGone(pod, roster.Listed, now) {
		t.Error("a pod that is silent is gone")
	}
	n.left(pod, now, false)
	if !n.isGone(pod, roster.Listed, now.Add(goneLapse-1)) || n.isGone([16]byte{2}, roster.Listed, now) {
		t.Error("not exactly the pod that left is gone")
	}
	if n.isGone(pod, roster.Removed, now.Add(goneLapse)) {
		t.Error("a pod stays gone without limit")
	}
	n.left(pod, now, true)
	if !n.isGone(pod, roster.Removed, now) || n.isGone(pod, roster.Listed, now) {
		t.Error("a pod that the list had lost is not gone for exactly as long as that is so")
	}
}

func TestNotesAreBounded(t *testing.T) {
	n, now := newNotes(), time.Now()
	name := func(i int) [16]byte { return [16]byte{byte(i), byte(i >> 8)} }
	for i := range 3 * mostNotes {
		n.left(name(i), now, false)
		if i%2 == 0 {
			n.answered(name(i))
		}
	}
	if len(n.pods) > mostNotes || len(n.order) > mostNotes {
		t.Errorf("%d notes, %d in order", len(n.pods), len(n.order))
	}
	if !n.isGone(name(3*mostNotes-1), roster.Unknown, now) || n.isGone(name(1), roster.Unknown, now) {
		t.Error("the oldest note stays, or the newest is forgotten")
	}
}
