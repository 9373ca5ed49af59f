package promise

import (
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"24 hours":         24 * time.Hour,
		"2 minutes":        2 * time.Minute,
		"1 minute":         time.Minute,
		"90 seconds":       90 * time.Second,
		"1 second":         time.Second,
		"100 milliseconds": 100 * time.Millisecond,
		"1.5ms":            1500 * time.Microsecond,
		"0s":               0,
	} {
		if got := words(d); got != want {
			t.Errorf("words(%d): %q, want %q", d, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for want, n := range map[string]int{"none": 0, "2": 2} {
		if got := count(n); got != want {
			t.Errorf("count(%d): %q, want %q", n, got, want)
		}
	}
}
