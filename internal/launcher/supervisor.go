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
	// DefaultGrace is how long a group has between TERM and KILL when nobody says
	// otherwise.
	DefaultGrace = 5 * time.Second

	// closeSlack is what the end may take on top of the grace: for KILL, for
	// collecting the dead, for the last lines of the log.
	closeSlack = 3 * time.Second
)

// Options say what is started for each session, and how.
type Options struct {
	// Command is the program and its arguments. It is looked up in PATH.
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
	root  string        // in which proc/self/cgroup is looked up
	slack time.Duration // in place of closeSlack
	fork  func(argv0 string, argv []string, attr *syscall.ProcAttr) (int, error)
}

// supervisor starts processes, collects the dead and ends sessions.
type supervisor struct {
	opts    Options
	env     []string
	adopts  bool // every child of this process is ours to collect
	limits  cgroups
	sink    *sink
	sweeper *sweeper
	jobs    chan func() // run on the thread that forks
	stop    chan struct{}
	stopped sync.WaitGroup

	forking sync.Mutex // held from the fork until the child is known

	mu       sync.Mutex
	closing  bool
	starting sync.WaitGroup
	children map[int]*child // not collected yet, by pid
	young    []time.Time    // when those began that were started last
	oom      *oomWatch
}

// newSupervisor begins to supervise. With adopts, it becomes the parent of all
// orphans and collects every child of this process, whoever started it.
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
	// The os package forks once to see what the kernel can do. It must have done
	// so before the reaper could take that child away from it.
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

// withoutMark drops what a launcher above this one may have set.
func withoutMark(env []string) []string {
	var kept []string
	for _, entry := range env {
		if !strings.HasPrefix(entry, sessionVariable+"=") {
			kept = append(kept, entry)
		}
	}
	return kept
}

// start starts the command. The ends of the pipes belong to the caller.
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

// admit counts a start in, unless everything is being ended.
func (s *supervisor) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.starting.Add(1)
	return true
}

// findRoom says why there is no room for another process, or counts it in.
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

// forkLoop forks on one thread, because the parent-death signal of a child is
// sent when the thread that forked it ends.
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
	// Out of memory, a server goes before the launcher does. Until forking is
	// released nobody collects the child, so the number is still its own.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0)
	c.pid = pid
	s.mu.Lock()
	s.children[pid] = c
	s.mu.Unlock()
	return nil
}

// endAll ends every session that there is now.
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

// close ends everything in order and says whether it could within its time. The
// log stays open: see closeLog.
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
