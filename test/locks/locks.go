// Package locks checks code that finds out whether locks are held for good.
package locks

import (
	"sync"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
)

// Taken checks that take waits for each of the locks, and returns when it is free.
func Taken(t *testing.T, take func(), locks map[string]sync.Locker) {
	t.Helper()
	for name, lock := range locks {
		lock.Lock()
		taken := make(chan struct{})
		go func() {
			take()
			close(taken)
		}()
		select {
		case <-taken:
			t.Errorf("the lock of the %s is not taken", name)
		case <-time.After(50 * time.Millisecond):
		}
		lock.Unlock()
		select {
		case <-taken:
		case <-time.After(hang.Guard):
			t.Fatalf("the lock of the %s is free, and was not taken", name)
		}
	}
}
