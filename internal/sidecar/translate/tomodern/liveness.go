package tomodern

// suspectLocked says whether a process takes no calls for now, because it may hang. It shows
// that it does not, or it is ended.
func (p *process) suspectLocked() bool { return p.silent || !p.ReadsLocked() }

// unreadLocked notes that the process did not read a message. The process is ended if it does
// not read another one, such as a ping, within StuckTimeout.
func (p *process) unreadLocked() {
	first := p.ReadsLocked()
	p.UnreadLocked()
	if first && !p.WritingLocked() {
		p.AskLocked("ping", "", p.server.options.Limits.CancelGrace)
	}
}

// heardLocked notes that the process has sent a message: it does not hang.
func (p *process) heardLocked() {
	if p.watch == nil {
		return
	}
	p.watch.Stop()
	p.watch = nil
	if p.silent {
		p.silent = false
		p.server.wakeLocked()
	}
}

// watchLocked finds out whether a process hangs, after a call that its client gave up. A
// process that rightly says nothing more of a cancelled call does answer a ping. endCancelledLocked
// looks after processes that may ask for input, which the cancelled call keeps to itself.
func (p *process) watchLocked(c *call) {
	if p.HeardLocked() != c.heard || p.watch != nil || p.DeadLocked() != nil || p.group.capabilities.any() {
		return
	}
	grace := p.server.options.Limits.CancelGrace
	p.AskLocked("ping", "", grace) // any answer will do
	p.watch = p.server.after(grace, p.checkSilenceLocked)
}

// checkSilenceLocked is for a process that has sent nothing since it was watched: it takes no more
// calls, and ends with those that it has. One of them may be why it is silent, and may still be
// answered.
func (p *process) checkSilenceLocked() {
	grace := p.server.options.Limits.CancelGrace
	switch {
	case p.watch == nil || p.DeadLocked() != nil:
	case p.WritingLocked() && !p.silent: // it may not have the ping yet
		p.watch.Reset(grace)
	case p.inFlight == 0:
		p.endSilentLocked()
	default:
		p.silent = true
		p.watch.Reset(grace)
	}
}

func (p *process) endSilentLocked() {
	p.server.metrics.Kills.Inc()
	p.dismissLocked(errSilent)
}
