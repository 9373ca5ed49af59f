package peer

import (
	"testing"
	"time"
)

func TestNotes(t *testing.T) {
	n, now, pod := newNotes(), time.Unix(1000, 0), [16]byte{1}
	silences := func(want ...time.Duration) {
		t.Helper()
		for _, want := range want {
			if got := n.silent(pod, now); got != want {
				t.Errorf("silent for %s, want %s", got, want)
			}
			now = now.Add(10 * time.Second)
		}
	}
	silences(0, 10*time.Second, 20*time.Second)
	n.answered(pod)
	silences(0, 10*time.Second)
	now = now.Add(noteLapse) // without a request in between, it is not known whether the pod was there
	silences(0, 10*time.Second)
	if n.isGone(pod) {
		t.Error("a pod that is silent is gone")
	}
	n.left(pod)
	if !n.isGone(pod) || n.isGone([16]byte{2}) {
		t.Error("not exactly the pod that left is gone")
	}
}

func TestNotesAreBounded(t *testing.T) {
	n := newNotes()
	name := func(i int) [16]byte { return [16]byte{byte(i), byte(i >> 8)} }
	for i := range 3 * mostNotes {
		n.left(name(i))
		if i%2 == 0 {
			n.answered(name(i))
		}
	}
	if len(n.pods) > mostNotes || len(n.order) > mostNotes {
		t.Errorf("%d notes, %d in order", len(n.pods), len(n.order))
	}
	if !n.isGone(name(3*mostNotes-1)) || n.isGone(name(1)) {
		t.Error("the oldest note stays, or the newest is forgotten")
	}
}
