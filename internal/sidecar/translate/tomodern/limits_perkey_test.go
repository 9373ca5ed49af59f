package tomodern

import "testing"

// Clients of one key never have all processes, where there are more than a few.
func TestChildrenPerKey(t *testing.T) {
	for children, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 2, 5: 2, 6: 3, 20: 10} {
		if got := ChildrenPerKey(children); got != want {
			t.Errorf("%d of %d, want %d", got, children, want)
		}
	}
}
