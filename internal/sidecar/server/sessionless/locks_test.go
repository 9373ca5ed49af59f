package sessionless

import (
	"sync"
	"testing"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
	"github.com/slipway-mcp/slipway/test/locks"
)

// lockedList is the lock of a list of tools, which is held while a page is read.
type lockedList struct {
	list   *toolList
	unlock chan struct{}
}

func (l *lockedList) Lock() {
	locked := make(chan struct{})
	l.unlock = make(chan struct{})
	go l.list.Learn([]byte(`{"tools":[{"name":"x"}]}`), func(toolindex.Tool) (p []paramheader.Param, keep bool) {
		close(locked)
		<-l.unlock
		return nil, false
	})
	<-locked
}

func (l *lockedList) Unlock() { close(l.unlock) }

func TestLocks(t *testing.T) {
	s, _, _ := newPool(t, nil)
	s.post(enveloped("3", "some/method", ""))
	await(t, "the second process", func() bool { return s.server.others() == 1 })
	first, other := s.server.current(), s.server.pool.all()[0]
	list := &lockedList{list: first.tools.of(listKey{})}
	locks.Taken(t, s.server.Locks, map[string]sync.Locker{
		"first process": &first.mu, "pool": &s.server.pool.mu, "other process": &other.mu, "continuations": &s.server.continuations.mu,
		"tool lists": &first.tools.mu, "tool list": list,
	})
}
