package mux

import "testing"

// A message belongs to a call only if the process had no other call since that one began.
func TestAttribution(t *testing.T) {
	var calls Attribution
	want := func(what string, number uint64) {
		t.Helper()
		if got := calls.Only(); got != number {
			t.Errorf("%s: got %d, want %d", what, got, number)
		}
	}
	want("no call", 0)
	calls.Begin(1)
	want("one call", 1)
	calls.Begin(2)
	want("two calls", 0)
	calls.End(1)
	want("the second alone, which was not alone before", 0)
	calls.Begin(3)
	calls.End(2)
	want("the third, which was not alone at first", 0)
	calls.End(3)
	calls.Begin(4)
	want("the next one", 4)
	calls.End(99)
	want("the end of no call", 4)
	calls.End(4)
	want("no call any more", 0)
}

// What a process never answers is bounded, and leaves no message without a doubt.
func TestAttributionWithoutAnswers(t *testing.T) {
	var calls Attribution
	for number := range uint64(2 * mostOpen) {
		calls.Begin(number + 1)
	}
	if got := len(calls.open); got > mostOpen {
		t.Errorf("%d calls are remembered, want at most %d", got, mostOpen)
	}
	for number := range uint64(2 * mostOpen) {
		calls.End(number + 1)
	}
	calls.Begin(2*mostOpen + 1)
	if got := calls.Only(); got != 0 {
		t.Errorf("got %d after calls that were forgotten", got)
	}
}
