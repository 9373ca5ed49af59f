package controller

import "time"

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

// awaitedWrite is the manager's own last write to objects of one kind of one server. A cache that
// does not show that write yet is behind, and the controller must not decide anything from it: it
// would repeat or undo what it has just done. The zero value awaits nothing.
type awaitedWrite struct {
	mark  string // what identifies the write: see the fields of memory
	since time.Time
}

// expect notes a write that the cache has to show.
func (w *awaitedWrite) expect(mark string, now time.Time) { *w = awaitedWrite{mark, now} }

// retryAfter is how soon to look at the cache again, or zero if the cache shows the last
// write, there was none, or the controller has waited for lagPatience.
func (w *awaitedWrite) retryAfter(shows func(mark string) bool, now time.Time) time.Duration {
	if w.mark == "" {
		return 0
	}
	waited := now.Sub(w.since)
	if shows(w.mark) || waited > lagPatience {
		*w = awaitedWrite{}
		return 0
	}
	return min(max(waited, firstLagRetry), lastLagRetry) // so that the pauses double
}
