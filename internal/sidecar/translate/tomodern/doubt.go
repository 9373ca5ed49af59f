package tomodern

import (
	"time"
)

// doubtful says whether a process takes no calls for now, because there are signs that it
// hangs. Either it shows that it does not, or it is ended.
func (w *worker) doubtful() bool { return w.silent || !w.ReadsLocked() }

// probeLocked has a process show whether it reads and answers. What it answers does not
// matter.
func (w *worker) probeLocked() {
	w.askLocked("ping", "", w.server.options.Limits.CancelGrace)
}

// unreadLocked notes that the process did not read a message. It is ended if it does not
// read another one for as long as it takes.
func (w *worker) unreadLocked() {
	first := w.ReadsLocked()
	w.UnreadLocked()
	if first && !w.WritingLocked() {
		w.probeLocked()
	}
}

// heardLocked notes that the process has said anything: it does not hang.
func (w *worker) heardLocked() {
	if w.watch == nil {
		return
	}
	w.watch.Stop()
	w.watch = nil
	if w.silent {
		w.silent = false
		w.server.wakeLocked()
	}
}

// watchLocked looks whether a process hangs that one of its calls was in vain at. One
// that rightly says nothing more of a cancelled call does answer a ping. Of those that may
// ask, which the cancelled call keeps to itself, endCancelled takes care.
func (w *worker) watchLocked(c *call) {
	if w.HeardLocked() != c.heard || w.watch != nil || w.DeadLocked() != nil || w.group.capabilities.ask() {
		return
	}
	w.probeLocked()
	w.watch = time.AfterFunc(w.server.options.Limits.CancelGrace, w.judge)
}

// judge is for a process that has said nothing since it was watched: it takes no more
// calls, and ends with those that it has. One of them may be why it is silent, and have
// its answer yet.
func (w *worker) judge() {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case w.watch == nil || w.DeadLocked() != nil:
	case w.WritingLocked() && !w.silent: // it may not have been asked yet
		w.watch.Reset(s.options.Limits.CancelGrace)
	case w.inFlight == 0:
		w.endSilentLocked()
	default:
		w.silent = true
		w.watch.Reset(s.options.Limits.CancelGrace)
	}
}

func (w *worker) endSilentLocked() {
	w.server.metrics.Kills.Inc()
	w.dismissLocked(errSilent)
}
