package launcher

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/test/hang"
)

// toldCode is the exit code of a server that has its own opinion of TERM.
const toldCode = 7

// helperSignals is a server that writes which signals it gets, and ends at TERM.
func helperSignals() int {
	signals := make(chan os.Signal, signalQueue)
	signal.Notify(signals, passedOn()...)
	fmt.Println("ready", syscall.Getpgrp() == os.Getpid())
	for received := range signals {
		fmt.Println(received)
		if received == syscall.SIGTERM {
			return toldCode
		}
	}
	return 0
}

// firstProcess is a program that is the first process of something like a container.
type firstProcess struct {
	*exec.Cmd
	input  io.Writer
	lines  *bufio.Scanner
	exited chan struct{}
}

// startFirst starts a program, as PID 1 if wanted, and kills it at the end of the test.
func startFirst(t *testing.T, asPID1 bool, command ...string) *firstProcess {
	t.Helper()
	c := &firstProcess{Cmd: exec.CommandContext(context.WithoutCancel(t.Context()), command[0], command[1:]...), exited: make(chan struct{})}
	if asPID1 {
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.input, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	errors := &safeBuffer{}
	c.lines, c.Stdout, c.Stderr = bufio.NewScanner(reader), writer, errors
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	guard := time.AfterFunc(hang.Guard, func() { _ = c.Process.Kill() })
	go func() {
		_ = c.Wait()
		guard.Stop()
		close(c.exited)
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-c.exited
		_ = reader.Close()
		if t.Failed() {
			t.Logf("%q wrote to standard error: %s", command, errors)
		}
	})
	return c
}

// says reads the next line of the program.
func (c *firstProcess) says(t *testing.T, want string) {
	t.Helper()
	if !c.lines.Scan() || c.lines.Text() != want {
		t.Fatalf("the program says %q (%v), want %q", c.lines.Text(), c.lines.Err(), want)
	}
}

// hears writes a line to the program's standard input.
func (c *firstProcess) hears(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(c.input, line); err != nil {
		t.Fatal(err)
	}
}

func (c *firstProcess) signal(t *testing.T, number syscall.Signal) {
	t.Helper()
	if err := c.Process.Signal(number); err != nil {
		t.Fatal(err)
	}
}

// code waits for the end, and returns the exit code.
func (c *firstProcess) code() int {
	<-c.exited
	return c.ProcessState.ExitCode()
}

// underInit is the command that runs another one under the launcher.
func underInit(command ...string) []string {
	return append([]string{os.Args[0], "helper", "init"}, command...)
}

// The signals reach the process and nothing but the process, and its exit code is passed on.
func TestInitPassesSignalsOn(t *testing.T) {
	t.Parallel()
	c := startFirst(t, false, underInit(os.Args[0], "helper", "signals")...)
	c.says(t, "ready true") // it leads its own group
	for _, number := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT, lastSignal,
	} {
		c.signal(t, number)
		c.says(t, number.String())
	}
	c.signal(t, syscall.SIGTERM)
	if code := c.code(); code != toldCode {
		t.Errorf("exit code %d, want %d", code, toldCode)
	}
}

func TestInitExitCodes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		want   int
	}{
		"success": {"exit 0", 0},
		"failure": {"exit 3", 3},
		"killed":  {"kill -KILL $$", 128 + 9},
		"ended":   {"kill -TERM $$", 128 + 15},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if code := startFirst(t, false, underInit("/bin/sh", "-c", test.script)...).code(); code != test.want {
				t.Errorf("exit code %d, want %d", code, test.want)
			}
		})
	}
}

// Environment, working directory and standard input are what the program would have without
// the launcher.
func TestInitChangesNothingElse(t *testing.T) {
	t.Parallel()
	const script = `readlink /proc/self/cwd; readlink /proc/self/fd/0; env | grep -v '^_=' | sort; ulimit -n`
	command := []string{"/bin/sh", "-c", script}
	run := func(command []string) string {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Dir, cmd.Env = "/usr", []string{"PATH=" + os.Getenv("PATH"), "HOME=/slipway-home", "ODD==\n"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("run %q: %v: %s", command, err, out)
		}
		return string(out)
	}
	if diff := cmp.Diff(run(command), run(underInit(command...))); diff != "" {
		t.Errorf("without the launcher and with it (-without +with):\n%s", diff)
	}
}

// Programs that do not care for TERM end with it, unless they are PID 1.
func TestInitAsPID1EndsWithTERM(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a PID namespace takes root")
	}
	t.Parallel()
	for name, command := range map[string][]string{
		"sh":      {"/bin/sh", "-c", `echo ready; while read line; do echo "$line"; done`},
		"Node.js": {"node", "-e", `process.stdin.on("data", line => process.stdout.write(line)); console.log("ready")`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(command[0]); err != nil {
				t.Skipf("there is no %s: %v", command[0], err)
			}
			bare := startFirst(t, true, command...)
			bare.says(t, "ready")
			bare.signal(t, syscall.SIGTERM)
			bare.hears(t, "still here") // or the test proves nothing
			bare.says(t, "still here")
			c := startFirst(t, true, underInit(command...)...)
			c.says(t, "ready")
			c.hears(t, "hello")
			c.says(t, "hello")
			c.signal(t, syscall.SIGTERM)
			if code := c.code(); code != 128+int(syscall.SIGTERM) {
				t.Errorf("exit code %d, want that of TERM", code)
			}
		})
	}
}

// Orphans become children of PID 1. If it did not reap them, they would stay zombies.
func TestInitAsPID1CollectsOrphans(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a PID namespace takes root")
	}
	t.Parallel()
	const script = `for i in 1 2 3 4 5 6 7 8; do (sleep 0.01 & ); done; echo ready; exec sleep 1000`
	c := startFirst(t, true, underInit("/bin/sh", "-c", script)...)
	c.says(t, "ready")
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", c.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the launcher and its process are all there is", func() bool {
		all, _ := inNamespace(t, namespace)
		return all == 2
	})
}

// The container ends with the process, whatever the process has left behind.
func TestInitAsPID1WaitsForNothingElse(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a PID namespace takes root")
	}
	t.Parallel()
	c := startFirst(t, true, underInit("/bin/sh", "-c", "trap '' TERM; sleep 1000 & echo ready; read line; exit 5")...)
	c.says(t, "ready")
	c.hears(t, "go")
	if code := c.code(); code != 5 {
		t.Errorf("exit code %d, want 5", code)
	}
}
