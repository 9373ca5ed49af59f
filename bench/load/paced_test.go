package load

import (
	"errors"
	"testing"
	"time"
)

// staller answers at once, but for one call.
type staller struct {
	calls int
	stall time.Duration
}

func (s *staller) Do(*Call, func([]byte) error) error {
	if s.calls++; s.calls == 20 {
		time.Sleep(s.stall)
	}
	return nil
}

func (s *staller) Close() error { return nil }

// A stall of 100 ms is one slow call for a closed loop. At 1,000 calls a second it keeps a
// hundred from being sent, and all of them are late.
func TestPacedCountsWhatAStallKeepsBack(t *testing.T) {
	session := &staller{stall: 100 * time.Millisecond}
	marks := 0
	result, err := Paced(t.Context(), []Session{session}, 1000, Timing{5 * time.Millisecond, 200 * time.Millisecond},
		func(s Session, _, _ int) error { return s.Do(nil, nil) },
		func() error {
			marks++
			return nil
		})
	if err != nil || marks != 2 {
		t.Fatalf("%d marks, %v", marks, err)
	}
	if result.Calls < 195 || result.Calls > 200 {
		t.Errorf("%d calls were due, want 200", result.Calls)
	}
	if got := result.Latencies.Quantile(0.75); got < 20*time.Millisecond {
		t.Errorf("a quarter of the calls took %s and more, want 20 ms at least", got)
	}
	if result.Late.Count() == 0 || result.Late.Count() > 195 {
		t.Errorf("%d calls were sent in time, want less than all", result.Late.Count())
	}
}

func TestPacedFails(t *testing.T) {
	broken := errors.New("broken")
	_, err := Paced(t.Context(), []Session{new(fake), new(fake)}, 1000, Timing{time.Minute, time.Minute},
		func(_ Session, index, number int) error {
			if index == 1 && number == 3 {
				return broken
			}
			return nil
		}, func() error { return nil })
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}
