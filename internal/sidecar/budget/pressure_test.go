package budget

import (
	"testing"
	"testing/synctest"
	"time"
)

// A client is slow if it takes nothing for long enough after it was asked first, and much
// waits for it.
func TestPressure(t *testing.T) {
	const much = SlowBytes + 1
	for name, test := range map[string]struct {
		step    time.Duration // between two questions
		waiting int
		reads   bool
		want    bool
	}{
		"takes nothing":          {time.Second, much, false, true},
		"takes something":        {time.Second, much, true, false},
		"little waits":           {time.Second, SlowBytes, false, false},
		"is asked once in a day": {24 * time.Hour, much, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p Pressure
				taken := uint64(0)
				for asked := time.Duration(0); asked < SlowAfter; asked += test.step {
					if p.Slow(test.waiting, taken) {
						t.Fatalf("slow after %s", asked)
					}
					time.Sleep(test.step)
					if test.reads {
						taken++
					}
				}
				if got := p.Slow(test.waiting, taken); got != test.want {
					t.Errorf("slow: %t, want %t", got, test.want)
				}
			})
		})
	}
}
