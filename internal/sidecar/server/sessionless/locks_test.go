package sessionless

import (
	"sync"
	"testing"

	"github.com/slipway-mcp/slipway/test/locks"
)

func TestLocks(t *testing.T) {
	s, _, _ := newPool(t, nil)
	s.post(enveloped("3", "some/method", ""))
	await(t, "the second process", func() bool { return s.server.others() == 1 })
	first, other := s.server.primary.all()[0], s.server.pool.all()[0]
	first.tools.of(listKey{})
	locks.Taken(t, s.server.Locks, map[string]sync.Locker{
		"first process": &first.mu, "pool": &s.server.pool.mu, "other process": &other.mu, "affinity": &s.server.pool.affinity.mu,
		"owners": &s.server.owners.mu, "tool lists": &first.tools.mu,
	})
}
