package tomodern

import (
	"sync"
	"testing"

	"github.com/slipway-mcp/slipway/test/locks"
)

func TestLocks(t *testing.T) {
	s := newStage(t, nil, nil)
	defer s.server.Close()
	locks.Taken(t, s.server.Locks, map[string]sync.Locker{"server": &s.server.mu})
}
