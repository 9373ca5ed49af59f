package sessionless

import "time"

// A process that hangs would keep all clients waiting without end. They have no session that
// they could open again.

// failIfStuck is for a process that does not read its input. It ends the process when that
// has lasted. A Translator supervises its processes itself, and there is no other Translator.
func (p *process) failIfStuck() {
	p.failIf(errStuck, func() bool {
		return p.translator == nil && p.UnreadLocked() >= p.options.Limits.StuckTimeout
	})
}

// retireIfSilentLocked is for a call whose client went away without an answer. If the process
// has been silent since the request, and for long enough, another one takes its place. It may
// still answer its other calls.
func (p *process) retireIfSilentLocked(c *Call) {
	if p.translator != nil || c.own || c.listen || p.HeardLocked() != c.heard || time.Since(c.sent) < p.options.Limits.StuckTimeout {
		return
	}
	p.retired = true
	p.completeListensLocked(true) // their clients subscribe again, at another process
}
