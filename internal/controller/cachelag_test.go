package controller

import (
	"testing"
	"time"
)

func TestAwaitedWrite(t *testing.T) {
	start := time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)
	shows := func(mark string) bool { return mark == "shown" }
	type look struct {
		after, want time.Duration
	}
	for name, test := range map[string]struct {
		mark  string
		looks []look
	}{
		"nothing was written":     {"", []look{{0, 0}}},
		"the cache shows it":      {"shown", []look{{0, 0}}},
		"the cache is behind":     {"hidden", []look{{0, firstLagRetry}, {firstLagRetry, firstLagRetry}, {300 * time.Millisecond, 300 * time.Millisecond}, {2 * time.Second, lastLagRetry}}},
		"the cache stays behind":  {"hidden", []look{{lagPatience, lastLagRetry}, {lagPatience + 1, 0}}},
		"it has given up waiting": {"hidden", []look{{lagPatience + 1, 0}, {0, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			var write awaitedWrite
			if test.mark != "" {
				write.expect(test.mark, start)
			}
			for _, look := range test.looks {
				if got := write.retryAfter(shows, start.Add(look.after)); got != look.want {
					t.Errorf("after %s: got %s, want %s", look.after, got, look.want)
				}
			}
		})
	}
}
