package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// The controller looks again after these while a cache does not show the manager's own
	// last write. Most caches show it within milliseconds.
	firstLagRetry = 50 * time.Millisecond
	lastLagRetry  = time.Second
	// lagPatience is how long the controller waits for a cache. Past it, the controller
	// decides from what the cache shows: the API server refuses a write that is based on an
	// old object.
	lagPatience = 5 * time.Second
)

// cacheLag knows, for each server, the manager's own last write to objects of one kind. A
// cache that does not show that write yet is behind, and the controller must not decide
// anything from it: it would repeat or undo what it has just done.
type cacheLag struct {
	mu      sync.Mutex
	awaited map[types.NamespacedName]awaitedWrite
}

type awaitedWrite struct {
	mark  string // what identifies the write: see the field of Reconciler
	since time.Time
}

// expect notes a write that the cache has to show.
func (l *cacheLag) expect(server types.NamespacedName, mark string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.awaited == nil {
		l.awaited = map[types.NamespacedName]awaitedWrite{}
	}
	l.awaited[server] = awaitedWrite{mark, now}
}

// retryAfter is how soon to look at the cache again, or zero if the cache shows the last
// write, there was none, or the controller has waited for lagPatience.
func (l *cacheLag) retryAfter(server types.NamespacedName, shows func(mark string) bool, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	write, ok := l.awaited[server]
	if !ok {
		return 0
	}
	waited := now.Sub(write.since)
	if shows(write.mark) || waited > lagPatience {
		delete(l.awaited, server)
		return 0
	}
	return min(max(waited, firstLagRetry), lastLagRetry) // so that the pauses double
}

func (l *cacheLag) forget(server types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.awaited, server)
}
