package formodern

import (
	"context"
	"errors"
	"os"
	"time"
)

// isUnread says whether a process did not read a message in time. It has not seen it.
func isUnread(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// doubtful says whether a process takes no calls for now, because there are signs that it
// hangs. Either it shows that it does not, or it is ended.
func (w *worker) doubtful() bool { return w.silent || !w.unread.IsZero() }

// probeLocked has a process show whether it reads and answers. What it answers does not
// matter.
func (w *worker) probeLocked() {
	w.askLocked("ping", "", w.server.options.Limits.CancelGrace)
}

// unreadLocked notes that the process did not read a message. It is ended if it does not
// read another one for as long as it takes.
func (w *worker) unreadLocked() {
	if !w.unread.IsZero() {
		return
	}
	w.unread = time.Now()
	if !w.writing {
		w.probeLocked()
	}
}

// readLocked notes that the process reads.
func (w *worker) readLocked() {
	if !w.unread.IsZero() {
		w.unread = time.Time{}
		w.server.wakeLocked()
	}
}

// stillUnread is for a message of ours that the process did not read. It says whether
// that has been so for too long.
func (w *worker) stillUnread() bool {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	w.unreadLocked()
	return time.Since(w.unread) >= s.options.Limits.StuckTimeout
}

// heardLocked notes that the process has said anything: it does not hang.
func (w *worker) heardLocked() {
	w.heard++
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
	if w.heard != c.heard || w.watch != nil || w.dead != nil || w.group.capabilities.ask() {
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
	case w.watch == nil || w.dead != nil:
	case w.writing && !w.silent: // it may not have been asked yet
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
