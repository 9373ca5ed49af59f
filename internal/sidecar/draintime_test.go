package sidecar

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
)

// seconds are a time from the beginning of a drain.
type seconds float64

func (s seconds) long() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// The deadline of a drain is the earliest that the adapter knows. Sessions stay until shortly before that.
func TestDrainTime(t *testing.T) {
	t.Parallel()
	type said map[seconds]roster.Ending // by when the list comes, from the beginning of the drain
	for name, test := range map[string]struct {
		timeout                 seconds
		said                    said
		hasten                  seconds // 0 is never
		stay, part, over, parts seconds
	}{
		"own timeout":         {timeout: 540, stay: 535, part: 540, over: 540, parts: 2},
		"little time":         {timeout: 4, stay: 0, part: 4, over: 4, parts: 1.6},
		"none":                {timeout: 0},
		"list before":         {timeout: 540, said: said{0: {Seconds: 20}}, stay: 15, part: 20, over: 20, parts: 2},
		"list during":         {timeout: 540, said: said{10: {Seconds: 20}}, stay: 15, part: 20, over: 20, parts: 2},
		"list too late":       {timeout: 540, said: said{100: {Seconds: 20}}, stay: 100, part: 100, over: 100},
		"list, little time":   {timeout: 540, said: said{100: {Seconds: 102}}, stay: 100, part: 102, over: 102, parts: 0.8},
		"list, more time":     {timeout: 60, said: said{10: {Seconds: 540}}, stay: 55, part: 60, over: 60, parts: 2},
		"list, endless":       {timeout: 60, said: said{10: {Seconds: math.MaxInt64}}, stay: 55, part: 60, over: 60, parts: 2},
		"list, nonsense":      {timeout: 60, said: said{10: {Seconds: -1}}, stay: 55, part: 60, over: 60, parts: 2},
		"less and less":       {timeout: 540, said: said{10: {Seconds: 300}, 20: {Seconds: 200}, 30: {Seconds: 400}, 40: {}}, stay: 195, part: 200, over: 200, parts: 2},
		"all pods end":        {timeout: 540, said: said{100: {Closing: true}}, stay: 100, part: 100, over: 160, parts: 2},
		"said twice":          {timeout: 540, said: said{100: {Closing: true}, 110: {Closing: true}, 120: {}}, stay: 100, part: 100, over: 160, parts: 2},
		"all end, less time":  {timeout: 540, said: said{0: {Closing: true, Seconds: 20}}, over: 20, parts: 2},
		"all end, late":       {timeout: 540, said: said{538: {Closing: true}}, stay: 535, part: 538, over: 540, parts: 2},
		"told to end":         {timeout: 540, hasten: 7, stay: 7, part: 7, over: 540, parts: 2},
		"told, then all end":  {timeout: 540, hasten: 7, said: said{8: {Closing: true}}, stay: 7, part: 7, over: 68, parts: 2},
		"told, then the list": {timeout: 540, hasten: 7, said: said{8: {Seconds: 30}}, stay: 7, part: 7, over: 30, parts: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDrainTime(t.Context(), test.timeout.long())
				for at, said := range test.said {
					if at == 0 {
						d.obey(said)
						continue
					}
					time.AfterFunc(at.long(), func() { d.obey(said) })
				}
				if test.hasten > 0 {
					time.AfterFunc(test.hasten.long(), d.hasten)
				}
				for phase, want := range map[context.Context]seconds{d.stay: test.stay, d.part: test.part, d.over: test.over} {
					context.AfterFunc(phase, func() {
						if got := time.Since(d.begin); got != want.long() {
							t.Errorf("a phase ends after %s, want %s", got, want.long())
						}
					})
				}
				<-d.stay.Done()
				if got := d.spread(); got != test.parts.long() {
					t.Errorf("sessions end within %s, want %s", got, test.parts.long())
				}
				<-d.over.Done()
				synctest.Wait()
				if got := d.spread(); got != 0 {
					t.Errorf("after the deadline: sessions end within %s", got)
				}
			})
		})
	}
}

// A drain that ends before its time leaves nothing behind.
func TestDrainTimeStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDrainTime(t.Context(), time.Hour)
		d.stop()
		<-d.stay.Done()
		synctest.Wait()
		if d.passed.Stop() || d.stayed.Stop() {
			t.Error("a timer runs")
		}
	})
}
