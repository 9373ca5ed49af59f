package peer

import (
	"errors"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

const (
	// watchInterval is the time between two looks. With the longest attempt it is within noteLapse.
	watchInterval = 2 * time.Second
	// watchFor is how long a pod is watched after the last request that could not reach it. A client comes back sooner,
	// also if it reaches other pods in between.
	watchFor = time.Minute
	// mostWatched bounds the pods that are watched at a time.
	mostWatched = 64
)

// watches are the pods that this one tries to reach although no request waits for them. A client that gets 503 goes on to
// another pod, so the requests for a pod that is gone come here in turns with long pauses, and none of them would ever find
// that the pod was silent for long enough.
type watches struct {
	mu    sync.Mutex
	until map[sessionid.Owner]time.Time
}

// begin reports whether a new watch has to run.
func (w *watches) begin(pod sessionid.Owner, until time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, runs := w.until[pod]
	if !runs && len(w.until) >= mostWatched {
		return false
	}
	if w.until == nil {
		w.until = map[sessionid.Owner]time.Time{}
	}
	w.until[pod] = until
	return !runs
}

// goesOn reports whether a watch still has to run. It forgets one that has not.
func (w *watches) goesOn(pod sessionid.Owner, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Before(w.until[pod]) {
		return true
	}
	delete(w.until, pod)
	return false
}

func (w *watches) end(pod sessionid.Owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.until, pod)
}

// watch goes on trying to reach a pod that could not be reached, also while the list has the pod: the manager finds later
// than the requests that a node is lost.
func (t *Router) watch(pod sessionid.Owner, returns bool) {
	if t.watches.begin(pod, time.Now().Add(watchFor)) {
		go t.runWatch(pod, returns)
	}
}

// isAway reports whether a pod that may have a session still cannot be reached.
func isAway(last contact, returns bool) bool {
	return last == unreachable || last == unready || last == refused && returns
}

func (t *Router) runWatch(pod sessionid.Owner, returns bool) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for t.watches.goesOn(pod, time.Now()) {
		select {
		case <-t.draining.Done():
			t.watches.end(pod)
			return
		case <-tick.C:
		}
		if !isAway(t.try(pod, returns), returns) {
			t.watches.end(pod)
			return
		}
	}
}

// try tries to reach a pod once, and remembers the outcome. A drain that cuts the attempt short says nothing of the pod.
func (t *Router) try(pod sessionid.Owner, returns bool) contact {
	err := t.options.Relay.Reach(t.draining, pod)
	switch {
	case err == nil:
		t.notes.answered(pod.UID)
		return connected
	case t.draining.Err() != nil:
		return untried
	}
	failed, _ := errors.AsType[*relay.DialError](err) // as Reach promises
	contact := contactOf(failed.Outcome)
	_, _ = t.notes.judge(pod.UID, knowledge{contact: contact, listing: t.options.Standing(pod.UID), returns: returns}, 1, time.Now())
	return contact
}
