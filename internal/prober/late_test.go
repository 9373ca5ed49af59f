package prober

import (
	"context"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// An answer that is complete may wait for its turn to be decoded until the deadline has
// passed. That makes no suspect of the instance, which answered in time.
func TestDecodingIsNotHeldAgainstTheInstance(t *testing.T) {
	answer := func(r reply, err error) func(context.Context) (reply, error) {
		return func(ctx context.Context) (reply, error) {
			<-ctx.Done()
			return r, err
		}
	}
	for name, test := range map[string]struct {
		fetch   func(context.Context) (reply, error)
		suspect bool
		message string
	}{
		"decoded":           {answer(good("1", 0), nil), false, ""},
		"no room meanwhile": {answer(reply{}, errNoRoom), false, ""},
		"not understood":    {answer(reply{}, failure(mcpprobe.Protocol, 0, "no answer of an adapter")), false, "the catalog cannot be read: no answer of an adapter"},
		"no answer":         {answer(reply{}, failure(mcpprobe.Timeout, 0, "")), true, "the catalog cannot be read: the adapter did not answer within 5s"},
		"not reached":       {answer(reply{}, failure(mcpprobe.Unreachable, 0, "")), true, "the catalog cannot be read: the manager cannot connect to port 16271 of the pod"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{Log: discard}, func(t *testing.T, w *world) {
				w.onFetch(func(ctx context.Context, _ Instance, _ string) (reply, error) { return test.fetch(ctx) })
				w.Watch(alpha, []Instance{pod("a")})
				w.pass(5100 * time.Millisecond) // the first question, with a verification
				suspect := func() bool {
					w.Prober.mu.Lock()
					defer w.Prober.mu.Unlock()
					return w.servers[alpha].instances["a"].suspect
				}
				if got := suspect(); got != test.suspect {
					t.Errorf("suspect is %v", got)
				}
				w.pass(45 * time.Second) // at least three more
				w.wantOutcome("a", Verified, test.message)
				if got := suspect(); got != test.suspect {
					t.Errorf("suspect is %v in the end", got)
				}
			})
		})
	}
}
