package prober

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// A rotation goes on as soon as an adapter says that it can. How many sessions a key still has is not told.
func TestUseOfKeysIsTold(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		one, two := adapterapi.NewKey().ID(), adapterapi.NewKey().ID()
		w.Watch(alpha, []Instance{pod("a", func(i *Instance) { i.Interval = time.Second })})
		w.pass(3 * time.Second)
		for _, step := range []struct {
			name string
			use  *adapterapi.KeyUse
			told int
		}{
			{"it says for the first time", &adapterapi.KeyUse{Current: one}, 1},
			{"the same", &adapterapi.KeyUse{Current: one}, 0},
			{"the next key is accepted", &adapterapi.KeyUse{Current: one, Others: []adapterapi.OtherKey{{ID: two}}}, 1},
			{"it is used", &adapterapi.KeyUse{Current: two, Others: []adapterapi.OtherKey{{ID: one, Sessions: 9}}}, 1},
			{"fewer sessions", &adapterapi.KeyUse{Current: two, Others: []adapterapi.OtherKey{{ID: one, Sessions: 1}}}, 0},
			{"no session", &adapterapi.KeyUse{Current: two, Others: []adapterapi.OtherKey{{ID: one}}}, 1},
			{"the last key is forgotten", &adapterapi.KeyUse{Current: two}, 1},
			{"an adapter that does not say", nil, 1},
		} {
			r := good("1", 0)
			r.keys = step.use
			w.takeTold()
			w.replyWith(r)
			w.pass(3 * time.Second)
			if told := min(1, w.takeTold()); told != step.told {
				t.Errorf("%s: was told %d times, want %d", step.name, told, step.told)
			}
			if diff := cmp.Diff(step.use, w.result("a").Keys); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step.name, diff)
			}
		}
	})
}

// What an adapter has said of its keys stays when it is not reached any more, and so does that it is not reached.
func TestSilentAdapter(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		r := good("1", 0)
		r.keys = &adapterapi.KeyUse{Current: adapterapi.NewKey().ID()}
		w.Watch(alpha, []Instance{pod("a", func(i *Instance) { i.Interval = time.Second })})
		for _, silent := range []bool{false, true, false} {
			w.onFetch(func(context.Context, Instance, string) (reply, error) {
				if silent {
					return reply{}, class(mcpprobe.Unreachable)
				}
				return r, nil
			})
			w.pass(time.Minute)
			if got := w.result("a"); got.Silent != silent || got.Keys == nil || got.Keys.Current != r.keys.Current {
				t.Errorf("silent: %t, keys %v, want %t, %v", got.Silent, got.Keys, silent, r.keys)
			}
		}
	})
}
