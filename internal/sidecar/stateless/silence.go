package stateless

import (
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// A process that hangs would keep all clients waiting for ever: they have no session to
// begin anew.

// noteUnread is for a process that does not read what it is sent. It is ended when that
// has lasted. A translator looks after its processes itself, and there is no other one.
func (r *run) noteUnread() {
	if r.translator != nil {
		return
	}
	r.mu.Lock()
	stuck := r.UnreadLocked() >= r.options.Limits.StuckTimeout
	r.mu.Unlock()
	if stuck {
		r.fail(errHangs)
	}
}

// noteSilenceLocked is for a call that somebody gave up, if it has no answer. If the
// process has said nothing at all since it was made, and there was time, others take its
// place. Its other calls may still be answered.
func (r *run) noteSilenceLocked(c *call, unanswered bool) {
	if !unanswered || r.translator != nil || c.own || c.listen || r.HeardLocked() != c.before || time.Since(c.began) < r.options.Limits.StuckTimeout {
		return
	}
	r.retired = true
	for other := range r.open {
		if other.listen && !other.own {
			other.completeLocked() // its client asks again, and another process
		}
	}
}

// noteAnswerLocked looks whether a process has begun what other requests go on with, which may
// be a task.
func (r *run) noteAnswerLocked(c *call, answer session.Message, task bool) {
	if c.own {
		return
	}
	if task && r.idle != nil {
		r.idle.Stop()
		r.idle = nil // it works on, and nobody knows until when
	}
	if r.translator != nil {
		return // what is made of several servers knows whose it is
	}
	marks := begunIn(answer)
	if len(marks) == 0 {
		return
	}
	if !c.inside && !c.aboutTask { // which was begun before
		r.options.owners.note(c.principal, marks)
	}
	if r.noteBegun != nil {
		r.noteBegun(r, marks)
	}
}
