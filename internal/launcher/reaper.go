package launcher

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// reapLoop is the one place that collects dead children. A wait per child would cost a
// thread per child. The kernel merges signals of one kind, so that each one means "at
// least one child".
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
			// This is an orphan, or a child that has died before fork could record it.
			// After that fork has returned, it is clear which.
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

// nextDead looks at all children of this process, or only at those of the supervisor
// where other code may start processes.
func (s *supervisor) nextDead() (int, error) {
	if s.adopts {
		return peekDead(waitAny, 0)
	}
	// A child may die before fork has recorded it, and its signal comes only once.
	s.awaitFork()
	for _, c := range s.alive() {
		if pid, err := peekDead(waitPID, c.pid); pid != 0 || err != nil {
			return pid, err
		}
	}
	return 0, nil
}

// bury sends KILL to the rest of the group, while the dead leader still holds the PID,
// and then collects the leader.
func (s *supervisor) bury(pid int, c *child) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c != nil {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
	status, err := collect(pid)
	if err != nil {
		// A fork that fails collects its own child.
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
	exit := exitOfStatus(status)
	exit.OOM = s.oom.claims(exit, c.killed)
	s.sweeper.add(c)
	go c.finish(exit)
	return true
}

func exitOfStatus(status syscall.WaitStatus) Exit {
	exit := Exit{Code: max(status.ExitStatus(), 0)}
	if status.Signaled() {
		exit.Signal = status.Signal()
	}
	return exit
}
