package sse

import (
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/test/hang"
)

// U-02: a call that its client cancels is not answered, and its record says so at once.
func TestCancelledCall(t *testing.T) {
	t.Parallel()
	records := make(chan edge.Record, 16)
	e := newEndpoint(t, func(e *endpoint, _ *Options) {
		e.closed = func(r edge.Record) {
			if r.Method == "tools/call" {
				records <- r
			}
		}
	})
	c := e.connect()
	c.say(initializeBody)
	c.hear()
	c.call(1, "sleep", `"ms":3600000`)
	c.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	select {
	case r := <-records:
		if r.Error != edge.Cancelled {
			t.Errorf("the outcome is %q", r.Error)
		}
	case <-time.After(hang.Guard):
		t.Fatal("nothing is recorded")
	}
	c.call(2, "echo", `"text":"next"`)
	wantIn(t, c.hear(), `"id":2`, "next")
}
