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
	// Locks takes each lock of the part and releases it. It blocks while another goroutine holds
	// one of them.
	Locks func()
}

// liveTimeout is for taking all locks. The kubelet waits for longer, so that its event has the
// answer, which names the part that is stuck.
const liveTimeout = 1500 * time.Millisecond

// liveness finds out whether a goroutine holds a lock forever, so that clients hang.
type liveness struct {
	parts []Part
	turn  chan struct{} // holds a value during a check, so that stuck checks do not pile up
	at    atomic.Int64  // the part that the check looks at, or looked at last
}

// live answers the kubelet, which restarts the adapter after three failures.
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
