package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
)

const (
	// Variables of the launcher that the tests start.
	testSocket = "LAUNCHER_TEST_SOCKET"
	testGrace  = "LAUNCHER_TEST_GRACE"
	testRoot   = "LAUNCHER_TEST_ROOT" // of the cgroup files
	testErrno  = "LAUNCHER_TEST_ERRNO"
	testJoin   = "LAUNCHER_TEST_JOIN" // a cgroup to enter first

	// longGrace is for processes that end with TERM.
	longGrace = "2m"
)

// TestMain makes this binary its own launcher and its own servers.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "helper" {
		os.Exit(helper(os.Args[2], os.Args[3:]))
	}
	// Under the race detector every program would take a second longer to exit.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	os.Exit(m.Run())
}

// helperLauncher runs a launcher as the environment says.
func helperLauncher(command []string) int {
	opts := Options{Command: command, root: os.Getenv(testRoot), slack: hang.Guard}
	opts.Grace, _ = time.ParseDuration(os.Getenv(testGrace))
	if errno, err := strconv.Atoi(os.Getenv(testErrno)); err == nil {
		opts.fork = failingFork(syscall.Errno(errno))
	}
	if dir := os.Getenv(testJoin); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := Run(ctx, os.Getenv(testSocket), opts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// failingFork fails every second time, beginning with the second.
func failingFork(errno syscall.Errno) func(string, []string, *syscall.ProcAttr) (int, error) {
	var calls int
	return func(argv0 string, argv []string, attr *syscall.ProcAttr) (int, error) {
		if calls++; calls%2 == 0 {
			return 0, errno
		}
		return syscall.ForkExec(argv0, argv, attr)
	}
}

// testLauncher is a launcher in a process of its own.
type testLauncher struct {
	*exec.Cmd
	log    *safeBuffer
	exited chan struct{}
}

// startLauncher starts one whose command is a helper, or a program when it begins
// with "=".
func startLauncher(t *testing.T, socket string, env []string, command ...string) *testLauncher {
	t.Helper()
	l := &testLauncher{log: &safeBuffer{}, exited: make(chan struct{})}
	l.Cmd = exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], append([]string{"helper", "launcher"}, helperCommand(command...)...)...)
	l.Env = append(append(os.Environ(), testSocket+"="+socket, testGrace+"="+longGrace), env...)
	l.run(t)
	return l
}

// run starts the launcher. It is ended with the test, and must end well.
func (l *testLauncher) run(t *testing.T) {
	t.Helper()
	l.Stderr = l.log
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = l.Wait()
		close(l.exited)
	}()
	t.Cleanup(func() {
		_ = l.Process.Signal(syscall.SIGTERM)
		select {
		case <-l.exited:
		case <-time.After(hang.Guard):
			_ = l.Process.Kill()
			t.Errorf("launcher did not end; it wrote:\n%s", l.log)
			return
		}
		if state := l.ProcessState; !state.Success() && state.String() != "signal: killed" {
			t.Errorf("launcher: %v", state)
		}
		if t.Failed() {
			t.Logf("the launcher wrote:\n%s", l.log)
		}
	})
}

func helperCommand(command ...string) []string {
	if program, ok := strings.CutPrefix(command[0], "="); ok {
		return append([]string{program}, command[1:]...)
	}
	return append([]string{os.Args[0], "helper"}, command...)
}

// newSocket is a path that is short enough for a socket.
func newSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "launcher") //nolint:usetesting // the test's name makes the path too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func listen(t *testing.T, socket string, opts HostOptions) *Host {
	t.Helper()
	if opts.Logf == nil {
		opts.Logf = func(format string, args ...any) { t.Logf("host: "+format, args...) }
	}
	host, err := Listen(socket, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	return host
}

// startPair is a host with a launcher that is connected.
func startPair(t *testing.T, env []string, command ...string) (*Host, *testLauncher) {
	t.Helper()
	socket := newSocket(t)
	host := listen(t, socket, HostOptions{})
	l := startLauncher(t, socket, env, command...)
	awaitLauncher(t, host)
	return host, l
}

func awaitLauncher(t *testing.T, host *Host) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	if err := host.WaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
}

// spawner is what consumers need of Host and Direct.
type spawner interface {
	Spawn(ctx context.Context, label string) (*Process, error)
}

func spawn(t *testing.T, from spawner) *Process {
	t.Helper()
	process, err := from.Spawn(t.Context(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Stdin.Close()
		_ = process.Stdout.Close()
	})
	return process
}

// exitOf waits for the end of a process.
func exitOf(t *testing.T, process *Process) Exit {
	t.Helper()
	select {
	case <-process.Done():
	case <-time.After(hang.Guard):
		t.Fatalf("process %d did not end", process.PID)
	}
	return process.Exit()
}

// eventually polls a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	limit := time.After(hang.Guard)
	for !condition() {
		select {
		case <-ticker.C:
		case <-limit:
			t.Fatalf("not in %v: %s", hang.Guard, what)
		}
	}
}

// running says whether a process exists and is not a zombie.
func running(pid int) bool {
	stat, ok := readStat(pid)
	return ok && !stat.dead
}

// present says whether a process exists, even as a zombie.
func present(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func awaitGone(t *testing.T, pids map[string]int) {
	t.Helper()
	for name, pid := range pids {
		eventually(t, fmt.Sprintf("%s (%d) is gone", name, pid), func() bool { return !present(pid) })
	}
}

// descriptors counts the open files of a process.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func threads(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// children counts the children of a process, dead ones too.
func children(t *testing.T, parent int) int {
	t.Helper()
	pids, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	var count int
	for _, pid := range pids {
		if stat, ok := readStat(pid); ok && stat.parent == parent {
			count++
		}
	}
	return count
}

// safeBuffer is a buffer that may be read while it is written.
type safeBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
