package stateless

import (
	"sync"
	"testing"

	"github.com/slipway-mcp/slipway/test/locks"
)

func TestLocks(t *testing.T) {
	s, _, _ := newCrowd(t, nil)
	s.post(enveloped("3", "some/method", ""))
	await(t, "the second process", func() bool { return s.endpoint.others() == 1 })
	e := s.endpoint
	locks.Taken(t, e.Locks, map[string]sync.Locker{
		"first run": &e.process.all()[0].mu, "crowd": &e.crowd.mu, "other run": &e.crowd.all()[0].mu,
	})
}
