package sessionless

import (
	"crypto/sha256"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The adapter remembers the owner and the process of a continuation, and not of too many.
func TestContinuations(t *testing.T) {
	var known continuations
	named := func(name string) []continuation { return []continuation{sha256.Sum256([]byte(name))} }
	want := func(name string, want origin) {
		t.Helper()
		if diff := cmp.Diff(want, known.find([]byte(name)), cmp.AllowUnexported(origin{}), cmpopts.EquateComparable(&process{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	ended, _ := newScripted(testLimits())
	ended.continuations.record(named("x"), origin{process: ended})
	ended.fail(errDied)
	if ended.continuations.find([]byte("x")).process != nil {
		t.Error("a process that has ended is known")
	}
	one, two := &process{}, &process{}
	anna, bert := origin{process: one, owner: "anna", owned: true}, origin{process: two, owner: "bert", owned: true}
	known.record(named("a"), anna)
	known.record(named("a"), bert)
	want("a", origin{process: two, owner: "anna", owned: true})
	known.record(append(named("a"), named("b")...), bert)
	want("b", bert)
	known.record(named("translated"), origin{process: one})
	known.record(named("translated"), bert)
	want("translated", bert)
	known.forget(two)
	want("a", origin{owner: "anna", owned: true})
	for i := range maxContinuations - 3 {
		known.record(named(strconv.Itoa(i)), anna)
	}
	want("a", origin{owner: "anna", owned: true})
	known.record(named("one more"), anna)
	want("a", origin{})
	want("b", origin{owner: "bert", owned: true})
	if len(known.origins) != maxContinuations || len(known.order["anna"])+len(known.order["bert"]) != maxContinuations {
		t.Errorf("%d continuations are known, and %d in order", len(known.origins), len(known.order))
	}
}
