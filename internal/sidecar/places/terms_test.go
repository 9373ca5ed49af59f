package places

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// No session ends for a newcomer that may find a place elsewhere, and the newcomer does not count as refused.
func TestNoSessionEndsForANewcomerWithAnotherWay(t *testing.T) {
	for name, patience := range map[string]time.Duration{"that does not wait": 0, "that waits": 9 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlaces(1)
				there := open(t, p, "a", Opened)
				there.since = time.Now().Add(-time.Hour)
				began := time.Now()
				place, err := p.TakeOn(t.Context(), "a", Terms{Patience: patience})
				if place != nil || !errors.Is(err, ErrFull) || time.Since(began) != patience {
					t.Errorf("got %v, %v after %s", place, err, time.Since(began))
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if _, err := p.TakeOn(ctx, "a", Terms{Patience: time.Second}); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
				if there.isOver() || p.Refused() != 0 || p.Waiting() != 0 {
					t.Errorf("the session ended: %v, %d refused, %d wait", there.isOver(), p.Refused(), p.Waiting())
				}
			})
		})
	}
}

// A newcomer with another way gets the place that becomes free, as any other, and does not keep sessions from ending
// for those behind it.
func TestNewcomersOnDifferentTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(2)
		idle, busy := open(t, p, "a", Opened), open(t, p, "a", Worked)
		idle.since, busy.busy = time.Now().Add(-time.Hour), true
		patient := make(chan *Place, 1)
		go func() {
			place, err := p.TakeOn(t.Context(), "b", Terms{Patience: time.Minute})
			if err != nil {
				t.Error(err)
			}
			patient <- place
		}()
		synctest.Wait()
		began := time.Now()
		if _, err := p.Take(t.Context(), "c"); err != nil || time.Since(began) > evictInterval || !idle.isOver() {
			t.Errorf("got %v after %s; the idle session ended: %v", err, time.Since(began), idle.isOver())
		}
		if p.Waiting() != 1 {
			t.Errorf("%d wait", p.Waiting())
		}
		busy.place.Leave()
		if place := <-patient; place == nil || p.Waiting() != 0 {
			t.Errorf("got %v, and %d wait", place, p.Waiting())
		}
	})
}
