package launcher

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/test/hang"
)

func TestR01ManyChildrenFewThreadsNothingLeft(t *testing.T) {
	const count = 100
	host, l := startPair(t, nil, "=cat")
	echoes(t, spawn(t, host)) // whatever is made on first use is made
	eventually(t, "the first is collected", func() bool { return host.idle() || stopAll(host) })
	ours, theirs := descriptors(t, os.Getpid()), descriptors(t, l.Process.Pid)

	processes := make([]*Process, count)
	var spawning sync.WaitGroup
	for i := range processes {
		spawning.Go(func() {
			process, err := host.Spawn(t.Context(), fmt.Sprintf("session-%d", i))
			if err != nil {
				t.Error(err)
				return
			}
			processes[i] = process
		})
	}
	spawning.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, process := range processes {
		echoes(t, process)
	}
	most := threads(t, l.Process.Pid)
	if got := children(t, l.Process.Pid); got != count {
		t.Errorf("%d children, want %d", got, count)
	}
	for i, process := range processes {
		_ = process.Stdin.Close()
		_ = process.Stdout.Close()
		if i%2 == 0 {
			process.Stop(hang.Guard)
		}
	}
	for _, process := range processes {
		exitOf(t, process)
	}
	eventually(t, "every child is collected", func() bool { return children(t, l.Process.Pid) == 0 })
	most = max(most, threads(t, l.Process.Pid))
	t.Logf("%d threads", most)
	if most >= 32 {
		t.Errorf("%d threads for %d children", most, count)
	}
	eventually(t, "no descriptor is left", func() bool {
		return descriptors(t, os.Getpid()) <= ours && descriptors(t, l.Process.Pid) <= theirs
	})
}

// idle says whether no process of the launcher is left.
func (h *Host) idle() bool {
	link, _ := h.current()
	link.mu.Lock()
	defer link.mu.Unlock()
	return len(link.lifelines) == 0
}

// stopAll closes every lifeline, without a word.
func stopAll(h *Host) bool {
	link, _ := h.current()
	link.mu.Lock()
	defer link.mu.Unlock()
	for c := range link.lifelines {
		_ = c.Close()
	}
	return false
}

func TestR02LifelineClosedEndsTheGroup(t *testing.T) {
	t.Parallel()
	host, l := startPair(t, nil, "tree")
	process := spawn(t, host)
	pids := readTree(t, process)
	stopAll(host)
	if exit := exitOf(t, process); !exit.Lost {
		t.Errorf("exit %+v, want it lost", exit)
	}
	awaitGone(t, pids)
	if got := children(t, l.Process.Pid); got != 0 {
		t.Errorf("%d children are left", got)
	}
}

func TestAdapterDiesAndTheNextOneIsServed(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	first := listen(t, socket, HostOptions{})
	l := startLauncher(t, socket, nil, "tree")
	awaitLauncher(t, first)
	process := spawn(t, first)
	all := []map[string]int{readTree(t, process), readTree(t, spawn(t, first))}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	// The launcher ends the process when the first of its connections closes, and can say so
	// on the one that closes last.
	if exit := exitOf(t, process); !exit.Lost && exit.Signal != syscall.SIGTERM {
		t.Errorf("exit %+v, want it lost, or ended by the launcher", exit)
	}
	if _, err := first.Spawn(t.Context(), "x"); !errors.Is(err, ErrNoLauncher) {
		t.Errorf("spawn on a closed host: %v", err)
	}
	second := listen(t, socket, HostOptions{})
	awaitLauncher(t, second)
	for _, pids := range all {
		awaitGone(t, pids)
	}
	link, _ := second.current()
	readTree(t, spawn(t, second))
	if link.lastID != 1 {
		t.Errorf("requests go on at %d", link.lastID)
	}
	if l.ProcessState != nil {
		t.Error("the launcher ended")
	}
}

func TestR10LauncherDiesAndTheNextOneIsServed(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	host := listen(t, socket, HostOptions{})
	l := startLauncher(t, socket, nil, "echo")
	awaitLauncher(t, host)
	processes := []*Process{spawn(t, host), spawn(t, host), spawn(t, host)}
	for _, process := range processes {
		echoes(t, process)
	}
	if err := l.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		if diff := cmp.Diff(Exit{Lost: true}, exitOf(t, process)); diff != "" {
			t.Errorf("exit (-want +got):\n%s", diff)
		}
	}
	// Their pipes are still open here: it is the parent-death signal that ends them.
	for _, process := range processes {
		eventually(t, "the child is dead", func() bool { return !running(process.PID) })
	}
	eventually(t, "the host has noticed", func() bool { return !host.Connected() })
	if _, err := host.Spawn(t.Context(), "x"); !errors.Is(err, ErrNoLauncher) {
		t.Errorf("spawn without a launcher: %v", err)
	}
	startLauncher(t, socket, nil, "echo")
	awaitLauncher(t, host)
	echoes(t, spawn(t, host))
}

func TestR13TerminatedLauncherEndsAllInOrder(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		command []string
		grace   string
		want    Exit
	}{
		"willing":  {[]string{"echo"}, longGrace, Exit{Signal: syscall.SIGTERM}},
		"stubborn": {[]string{"branch", "stubborn"}, "100ms", Exit{Signal: syscall.SIGKILL}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, l := startPair(t, []string{testGrace + "=" + test.grace}, test.command...)
			processes := []*Process{spawn(t, host), spawn(t, host)}
			if test.command[0] == "branch" {
				for _, process := range processes {
					line, err := bufio.NewReader(process.Stdout).ReadString('\n')
					if err != nil {
						t.Fatal(line, err)
					}
				}
			}
			if err := l.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			for _, process := range processes {
				if diff := cmp.Diff(test.want, exitOf(t, process)); diff != "" {
					t.Errorf("exit (-want +got):\n%s", diff)
				}
			}
			<-l.exited
			if code := l.ProcessState.ExitCode(); code != 0 {
				t.Errorf("launcher: exit code %d", code)
			}
		})
	}
}

func TestTerminatedLauncherRefuses(t *testing.T) {
	t.Parallel()
	host, l := startPair(t, nil, "branch", "stubborn")
	process := spawn(t, host)
	if line, err := bufio.NewReader(process.Stdout).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	if err := l.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "new processes are refused", func() bool {
		late, err := host.Spawn(t.Context(), "late")
		if err == nil {
			late.abandon()
		}
		refused, ok := errors.AsType[*RefusedError](err)
		return ok && refused.Reason == ReasonStopping
	})
	process.Stop(0) // shortens the grace of the end
	if diff := cmp.Diff(Exit{Signal: syscall.SIGKILL}, exitOf(t, process)); diff != "" {
		t.Errorf("exit (-want +got):\n%s", diff)
	}
}

func TestSpawnGivenUpLeavesNothing(t *testing.T) {
	host, l := startPair(t, nil, "echo")
	before := descriptors(t, os.Getpid())
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
		process, err := host.Spawn(ctx, "x")
		cancel()
		if err == nil {
			process.abandon()
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	eventually(t, "nothing is left", func() bool {
		return children(t, l.Process.Pid) == 0 && descriptors(t, os.Getpid()) <= before
	})
	echoes(t, spawn(t, host))
}
