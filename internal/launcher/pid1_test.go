package launcher

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// serverUser is who the server's container runs as.
const serverUser = 1000

// helperPID1 makes itself at home in its PID namespace, gives up root and becomes
// the launcher under the same number.
func helperPID1(args []string) int {
	steps := []func() error{
		func() error { return syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "") },
		func() error { return syscall.Mount("proc", "/proc", "proc", 0, "") },
		func() error { return syscall.Setgroups(nil) },
		func() error { return syscall.Setresgid(serverUser, serverUser, serverUser) },
		func() error { return syscall.Setresuid(serverUser, serverUser, serverUser) },
		func() error {
			return syscall.Exec(os.Args[0], append([]string{os.Args[0], "helper", "launcher"}, args...), os.Environ())
		},
	}
	for i, step := range steps {
		if err := step(); err != nil {
			fmt.Fprintln(os.Stderr, "step", i, err)
			return 1
		}
	}
	return 0
}

// inNamespace counts the processes that share a PID namespace, and how many of
// them are not dead.
func inNamespace(t *testing.T, namespace string) (all, alive int) {
	t.Helper()
	pids, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); err == nil && link == namespace {
			all++
			if running(pid) {
				alive++
			}
		}
	}
	return all, alive
}

func TestAsUnprivilegedPID1(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a PID namespace takes root")
	}
	t.Parallel()
	socket := newSocket(t)
	program := filepath.Join(filepath.Dir(socket), "launcher")
	copyProgram(t, program)
	host := listen(t, socket, HostOptions{AllowedUIDs: []uint32{serverUser}})
	l := &testLauncher{log: &safeBuffer{}, exited: make(chan struct{})}
	l.Cmd = exec.CommandContext(context.WithoutCancel(t.Context()), program, "helper", "pid1", program, "helper", "tree")
	l.Env = append(os.Environ(), testSocket+"="+socket, testGrace+"="+longGrace)
	l.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	l.run(t)
	awaitLauncher(t, host)
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", l.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	// The numbers are of the other namespace, so only their count is of use.
	grown := func() bool {
		_, alive := inNamespace(t, namespace)
		return alive == 1+1+len(branches)
	}
	for range 3 {
		process := spawn(t, host)
		eventually(t, "the tree has grown", grown)
		process.Stop(50 * time.Millisecond)
		exitOf(t, process)
		eventually(t, "only PID 1 is left", func() bool {
			all, _ := inNamespace(t, namespace)
			return all == 1
		})
	}
	spawn(t, host)
	eventually(t, "the tree has grown", grown)
	if err := l.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-l.exited
	if code := l.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d\n%s", code, l.log)
	}
}

// copyProgram puts this binary where another user can run it.
func copyProgram(t *testing.T, path string) {
	t.Helper()
	source, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(target, source)
	if closeErr := target.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
}
