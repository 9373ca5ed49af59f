package launcher

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// DefaultGrace is how long a group has between TERM and KILL, unless the user sets
	// another time.
	DefaultGrace = 5 * time.Second

	// closeSlack is the time after the grace for KILL, for collecting dead processes, and
	// for the last lines of the log.
	closeSlack = 3 * time.Second
)

// Options are the command of a session, and how the launcher starts it.
type Options struct {
	// Command is the program and its arguments. The launcher looks it up in PATH.
	Command []string

	// Env is the environment; nil is this process's own.
	Env []string

	// Dir is the working directory; empty is this process's own.
	Dir string

	// Grace is the time between TERM and KILL when a lifeline breaks or everything
	// ends; 0 is DefaultGrace.
	Grace time.Duration

	// Stderr takes the processes' standard error and a few lines about them; nil
	// is os.Stderr.
	Stderr io.Writer

	// For tests.
	root  string        // of proc/self/cgroup
	slack time.Duration // in place of closeSlack
	fork  func(argv0 string, argv []string, attr *syscall.ProcAttr) (int, error)
}

// supervisor starts processes, collects dead ones, and ends sessions.
type supervisor struct {
	opts    Options
	env     []string
	adopts  bool // it collects every child of this process
	limits  cgroups
	sink    *sink
	sweeper *sweeper
	jobs    chan func() // run on the thread that forks
	stop    chan struct{}
	stopped sync.WaitGroup

	forking sync.Mutex // held from the fork until the child is in children

	mu       sync.Mutex
	closing  bool
	starting sync.WaitGroup
	children map[int]*child // not collected yet, by pid
	young    []time.Time    // when the last processes started
	oom      *oomWatch
}

// newSupervisor starts a supervisor. With adopts, this process becomes the parent of all
// orphans, and the supervisor collects every child of it, also those that other code has
// started.
func newSupervisor(opts Options, adopts bool) (*supervisor, error) {
	if len(opts.Command) == 0 || opts.Command[0] == "" {
		return nil, errors.New("no command to start")
	}
	if opts.Grace <= 0 {
		opts.Grace = DefaultGrace
	}
	if opts.Stderr == nil {
		opts.Stderr = os.Stderr
	}
	if opts.Env == nil {
		opts.Env = os.Environ()
	}
	if opts.root == "" {
		opts.root = "/"
	}
	if opts.slack == 0 {
		opts.slack = closeSlack
	}
	if opts.fork == nil {
		opts.fork = syscall.ForkExec
	}
	s := &supervisor{
		opts:     opts,
		env:      withoutMark(opts.Env),
		adopts:   adopts,
		limits:   findCgroups(opts.root),
		sink:     newSink(opts.Stderr),
		jobs:     make(chan func()),
		stop:     make(chan struct{}),
		children: map[int]*child{},
	}
	s.oom = newOOMWatch(s.limits.oomKills)
	s.sweeper = newSweeper(s)
	// The os package forks once to see what the kernel can do. That must happen before
	// the reaper starts, which would collect the child.
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Release()
	}
	if adopts {
		if err := becomeSubreaper(); err != nil {
			s.sink.logf("become subreaper: %v; processes that leave their group may outlive their session", err)
		}
	}
	s.stopped.Go(s.forkLoop)
	s.stopped.Go(s.reapLoop)
	s.stopped.Go(s.sweeper.loop)
	return s, nil
}

// withoutMark drops the mark of a launcher that has started this one.
func withoutMark(env []string) []string {
	var kept []string
	for _, entry := range env {
		if !strings.HasPrefix(entry, sessionVariable+"=") {
			kept = append(kept, entry)
		}
	}
	return kept
}

// start starts the command. The caller closes the ends of the pipes.
func (s *supervisor) start(label string) (*child, error) {
	if !s.admit() {
		return nil, &RefusedError{ReasonStopping, "everything is being ended"}
	}
	defer s.starting.Done()
	if err := s.findRoom(); err != nil {
		return nil, err
	}
	path, err := lookup(s.opts.Command[0])
	if err != nil {
		return nil, err
	}
	pipes, err := newPipes()
	if err != nil {
		return nil, &RefusedError{ReasonDescriptors, err.Error()}
	}
	c := &child{
		super:  s,
		mark:   rand.Text(),
		label:  cleanLabel(label),
		stdin:  pipes.stdin[1],
		stdout: pipes.stdout[0],
		exited: newExitEvent(),
		gone:   make(chan struct{}),
	}
	c.stderr = newStderrPump(pipes.stderr[0], c.label, s.sink)
	forked := make(chan error)
	s.jobs <- func() { forked <- s.fork(c, path, pipes) }
	err = <-forked
	pipes.closeTheirs()
	if err != nil {
		closeAll([]int{c.stdin, c.stdout})
		_ = c.stderr.file.Close()
		return nil, startError(s.opts.Command[0], path, err)
	}
	go c.stderr.run()
	return c, nil
}

// admit counts a start, unless the supervisor is closing.
func (s *supervisor) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.starting.Add(1)
	return true
}

// findRoom returns why there is no room for another process, or counts it.
func (s *supervisor) findRoom() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.young = slices.DeleteFunc(s.young, func(begin time.Time) bool { return now.Sub(begin) > youth })
	if err := s.limits.usage().refusal(uint64(len(s.young))); err != nil {
		return err
	}
	s.young = append(s.young, now)
	return nil
}

// forkLoop forks on one thread, because the kernel sends the parent-death signal when the
// thread that has forked the child ends.
func (s *supervisor) forkLoop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case job := <-s.jobs:
			job()
		case <-s.stop:
			return
		}
	}
}

func (s *supervisor) fork(c *child, path string, pipes *pipes) error {
	attr := &syscall.ProcAttr{
		Dir:   s.opts.Dir,
		Env:   append([]string{sessionVariable + "=" + c.mark}, s.env...),
		Files: []uintptr{uintptr(pipes.stdin[0]), uintptr(pipes.stdout[1]), uintptr(pipes.stderr[1])},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	s.forking.Lock()
	defer s.forking.Unlock()
	pid, err := s.opts.fork(path, s.opts.Command, attr)
	if err != nil {
		return err
	}
	// Out of memory, the kernel is to kill a server and not the launcher. The reaper does
	// not collect the child while forking is held, so that the PID is still its own.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0)
	c.pid = pid
	s.mu.Lock()
	s.children[pid] = c
	s.mu.Unlock()
	return nil
}

// endAll ends every session.
func (s *supervisor) endAll(grace time.Duration) {
	for _, c := range s.alive() {
		c.end(grace)
	}
}

func (s *supervisor) alive() []*child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.children))
}

// close ends all sessions in order, and says whether they have ended in time. The log
// stays open: see closeLog.
func (s *supervisor) close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil
	}
	s.closing = true
	s.mu.Unlock()
	s.starting.Wait()
	children := s.alive()
	children = append(children, s.sweeper.pending()...)
	s.endAll(s.opts.Grace)
	limit := time.After(s.opts.Grace + s.opts.slack)
	for i, c := range children {
		for _, step := range []chan struct{}{c.exited.done, c.gone} {
			select {
			case <-step:
			case <-limit:
				return fmt.Errorf("end all sessions: %d of %d may be left", len(children)-i, len(children))
			}
		}
	}
	close(s.stop)
	s.stopped.Wait()
	return nil
}

func (s *supervisor) closeLog() { s.sink.close(time.Second) }
