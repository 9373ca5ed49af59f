package shared

import (
	"context"
	"sync"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/test/locks"
)

func TestLocks(t *testing.T) {
	options := testOptions()
	options.Acquire = func(context.Context) (mux.Server, error) { return &fake{t: t, result: plainResult}, nil }
	p := New(options)
	defer p.Close()
	if _, err := p.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	running, ok := p.instances.Current()
	if !ok {
		t.Fatal("no process runs")
	}
	locks.Taken(t, p.Locks, map[string]sync.Locker{"instance": &running.mu})
}
