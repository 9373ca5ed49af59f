package launcher

import (
	"syscall"
	"time"
)

// child is one started process and everything it starts.
type child struct {
	super         *supervisor
	pid           int
	mark          string // the value of SLIPWAY_SESSION
	label         string
	stdin, stdout int // the supervisor's ends of its pipes
	stderr        *stderrPump

	// Guarded by the supervisor's mutex.
	collected bool // the kernel may have given the PID to another process
	ended     bool // TERM or KILL was sent
	killed    bool // KILL was sent before the leader was dead
	deadline  time.Time
	timer     *time.Timer
	died      time.Time

	exited *exitEvent    // the leader is dead and the group has been sent KILL
	gone   chan struct{} // nothing of the session is left
}

// end sends TERM and, after the grace, KILL. Later calls only shorten the grace.
func (c *child) end(grace time.Duration) {
	c.super.mu.Lock()
	defer c.super.mu.Unlock()
	if c.collected || c.killed {
		return
	}
	if grace <= 0 {
		c.killLocked()
		return
	}
	deadline := time.Now().Add(grace)
	switch {
	case !c.ended:
		c.ended = true
		_ = syscall.Kill(-c.pid, syscall.SIGTERM)
		c.timer = time.AfterFunc(grace, func() { c.end(0) })
	case deadline.Before(c.deadline):
		c.timer.Reset(grace)
	default:
		return
	}
	c.deadline = deadline
}

func (c *child) killLocked() {
	c.ended, c.killed = true, true
	_ = syscall.Kill(-c.pid, syscall.SIGKILL)
}

// finish reports the end, once the pump has read the rest of standard error.
func (c *child) finish(exit Exit) {
	c.stderr.hurry()
	select {
	case <-c.stderr.done:
	case <-c.stderr.heard:
	}
	exit.StderrHead, exit.Stderr = c.stderr.ends()
	c.exited.come(exit)
}
