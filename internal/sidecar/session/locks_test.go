package session

import (
	"sync"
	"testing"

	"github.com/slipway-mcp/slipway/test/locks"
)

func TestLocks(t *testing.T) {
	r, h := NewRegistry(testPolicy), newHarness(t, testLimits)
	r.add(t, h, "a")
	locks.Taken(t, r.Locks, map[string]sync.Locker{"registry": &r.mu, "session": &h.mu})
}
