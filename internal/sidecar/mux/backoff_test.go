package mux

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

var errBroken = errors.New("it is broken")

func TestPace(t *testing.T) {
	for name, test := range map[string]struct {
		pace     Pace
		failures int
		want     time.Duration
	}{
		"on demand, none":              {OnDemand, 0, 0},
		"on demand, the first is free": {OnDemand, 1, 0},
		"on demand, the second":        {OnDemand, 2, time.Second},
		"on demand, the third":         {OnDemand, 3, 2 * time.Second},
		"on demand, the sixth":         {OnDemand, 6, 16 * time.Second},
		"on demand, the seventh":       {OnDemand, 7, 30 * time.Second},
		"on demand, the largest count": {OnDemand, math.MaxInt, 30 * time.Second},
		"background, none":             {Background, 0, 0},
		"background, the first":        {Background, 1, time.Second},
		"background, the second":       {Background, 2, 2 * time.Second},
		"background, the sixth":        {Background, 6, 30 * time.Second},
		"always the same":              {Pace{First: 10 * time.Second, Last: 10 * time.Second}, 1000, 10 * time.Second},
		"last before first":            {Pace{First: time.Minute, Last: time.Second}, 1, time.Second},
		"very long":                    {Pace{First: 1, Last: math.MaxInt64 / 4}, 1000, math.MaxInt64 / 4},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.pace.After(test.failures); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b BackOff
		if err := b.Err(); err != nil {
			t.Errorf("before any failure: %v", err)
		}
		if wait := b.Failed(errBroken, OnDemand); wait != 0 || b.Err() != nil {
			t.Errorf("the first failure costs %s: %v", wait, b.Err())
		}
		if wait := b.Failed(errBroken, OnDemand); wait != time.Second || b.Wait() != wait {
			t.Errorf("the second failure costs %s, and %s are left", wait, b.Wait())
		}
		time.Sleep(time.Second / 4)
		const want = "the next start is in 750ms, because of the last: it is broken"
		if err := b.Err(); !errors.Is(err, errBroken) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		time.Sleep(time.Second)
		if err := b.Err(); err != nil || b.Wait() != -time.Second/4 {
			t.Errorf("afterward: %v, %s left", err, b.Wait())
		}
		b.Failed(errBroken, OnDemand)
		b.Reset()
		if wait := b.Failed(errBroken, OnDemand); wait != 0 || b.Err() != nil {
			t.Errorf("the first failure after a success costs %s: %v", wait, b.Err())
		}
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		if !Pause(ctx, 2*time.Second) || time.Since(begin) != 2*time.Second {
			t.Errorf("it lasted %s", time.Since(begin))
		}
		if Pause(ctx, 2*time.Second) || time.Since(begin) != 3*time.Second {
			t.Errorf("it outlasted its context: %s", time.Since(begin))
		}
	})
}
