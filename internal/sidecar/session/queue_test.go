package session

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A queue has what a slice would have, and never much more room than it needs.
func TestQueue(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var q queue[int]
	var want []int
	for i, growing := 0, true; i < 20_000; i++ {
		if i%1000 == 0 {
			growing = random.IntN(2) == 0
		}
		if push := random.IntN(10) < 7; push == growing {
			q.push(i)
			want = append(want, i)
		} else if len(want) > 0 {
			first := *q.first()
			if got := q.pop(); got != want[0] || first != got {
				t.Fatalf("step %d: got %d and %d, want %d", i, first, got, want[0])
			}
			want = want[1:]
		}
		if q.len() != len(want) || cap(q.items) > max(queueKeeps, 4*len(want)+4) {
			t.Fatalf("step %d: %d items in %d places, want %d", i, q.len(), cap(q.items), len(want))
		}
		for _, taken := range q.items[:q.head] {
			if taken != 0 {
				t.Fatalf("step %d: %d is held", i, taken)
			}
		}
	}
	if !slices.Equal(q.all(), want) {
		t.Error("the items differ")
	}
}
