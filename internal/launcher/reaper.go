package launcher

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// reapLoop is the one place that collects dead children. A wait per child would
// cost a thread per child. Signals of one kind coalesce, so each is taken as
// "at least one".
func (s *supervisor) reapLoop() {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(died)
	for {
		s.reap()
		select {
		case <-died:
		case <-s.stop:
			return
		}
	}
}

func (s *supervisor) reap() {
	for {
		pid, err := s.nextDead()
		if err != nil {
			s.sink.logf("look for dead processes: %v", err)
		}
		if pid == 0 {
			return
		}
		c := s.child(pid)
		if c == nil {
			// Either an orphan, or a child that died before its fork was accounted
			// for: after that fork it is clear which.
			s.awaitFork()
			c = s.child(pid)
		}
		if !s.bury(pid, c) {
			return
		}
	}
}

func (s *supervisor) awaitFork() {
	s.forking.Lock()
	defer s.forking.Unlock()
}

func (s *supervisor) child(pid int) *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.children[pid]
}

// nextDead looks at all children, or only at our own where others may have some.
func (s *supervisor) nextDead() (int, error) {
	if s.adopts {
		return peekDead(waitAny, 0)
	}
	// A child may die before its fork has made it known; the signal that said so is
	// spent then.
	s.awaitFork()
	for _, c := range s.alive() {
		if pid, err := peekDead(waitPID, c.pid); pid != 0 || err != nil {
			return pid, err
		}
	}
	return 0, nil
}

// bury sends KILL to what is left of the group, while the dead leader still holds
// the number, and then collects the leader.
func (s *supervisor) bury(pid int, c *child) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c != nil {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
	status, err := collect(pid)
	if err != nil {
		// The fork that failed collects its own child.
		return c == nil
	}
	if c == nil {
		return true
	}
	delete(s.children, pid)
	c.collected, c.died = true, time.Now()
	if c.timer != nil {
		c.timer.Stop()
	}
	exit := Exit{Code: max(status.ExitStatus(), 0)}
	if status.Signaled() {
		exit.Signal = status.Signal()
	}
	exit.OOM = s.oom.claims(exit, c.killed)
	s.sweeper.add(c)
	go c.finish(exit)
	return true
}
