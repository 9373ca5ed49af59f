package admin

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// Part is a part of the adapter that all clients share.
type Part struct {
	Name string
	// Locks takes every lock of the part and gives it back. It does not return while one of
	// them is held.
	Locks func()
}

// liveTimeout is for all locks. The kubelet waits for longer, and its events say which part is
// stuck.
const liveTimeout = 1500 * time.Millisecond

// liveness finds out whether a lock is held for good, so that clients hang.
type liveness struct {
	parts []Part
	turn  chan struct{} // of the one check at a time: one that hangs for ever must have no company
	at    atomic.Int64  // the part that is looked at, or was last
}

func newLiveness(parts []Part) *liveness {
	return &liveness{parts: parts, turn: make(chan struct{}, 1)}
}

// live answers the kubelet, which restarts an adapter that says no three times.
func (l *liveness) live(w http.ResponseWriter, r *http.Request) {
	if l.check(r.Context()) {
		say(w, http.StatusOK, "ok")
		return
	}
	say(w, http.StatusInternalServerError, "stuck: a lock of the "+l.parts[l.at.Load()].Name+" has been held for more than "+liveTimeout.String())
}

func (l *liveness) check(ctx context.Context) bool {
	if len(l.parts) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	taken := make(chan struct{})
	go func() {
		for i := range l.parts {
			l.at.Store(int64(i))
			l.parts[i].Locks()
		}
		<-l.turn
		close(taken)
	}()
	select {
	case <-taken:
		return true
	case <-ctx.Done():
		return false
	}
}
