package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/test/hang"
)

func TestParseStat(t *testing.T) {
	rest := " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"
	tests := map[string]struct {
		line    string
		want    stat
		wantErr string
	}{
		"plain":           {line: "42 (etcd) S" + rest, want: stat{'S', 17, 4711}},
		"spaces":          {line: "42 (a b c) R" + rest, want: stat{'R', 17, 4711}},
		"misleading name": {line: "42 (x) S 1 (y) Z" + rest, want: stat{'Z', 17, 4711}},
		"no name":         {line: "42 etcd", wantErr: "no command name"},
		"short":           {line: "42 (etcd) S 1 2", wantErr: "3 fields"},
		"not a number":    {line: strings.Replace("42 (etcd) S"+rest, "4711", "x", 1), wantErr: "start time"},
		"no threads":      {line: strings.Replace("42 (etcd) S"+rest, " 17 ", " x ", 1), wantErr: "number of threads"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat(test.line)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("error %v, want one that says %q", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(stat{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// leaderless is in the environment of a process whose first thread is to end alone.
const leaderless = "SLIPWAY_TEST_LEADERLESS"

func init() {
	if os.Getenv(leaderless) != "" {
		// This is the first thread. The runtime's others go on, and keep everything open.
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	}
}

// A process of which only the first thread has ended still has its ports.
func TestThreadsOutliveTheFirst(t *testing.T) {
	t.Setenv(leaderless, "1")
	identity := start(t, os.Args[0])
	for {
		if now, err := readStat(identity.PID); err != nil {
			t.Fatal(err)
		} else if now.state == 'Z' {
			break
		}
	}
	if !identity.Alive() {
		t.Error("it is said to be dead")
	}
	if err := Stop(t.Context(), hang.Guard, identity); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func start(t *testing.T, args ...string) Identity {
	t.Helper()
	path, err := exec.LookPath(args[0])
	if err != nil {
		t.Skipf("%s is not installed", args[0])
	}
	identity, err := Start(Command{Path: path, Args: args[1:], Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = identity.Signal(syscall.SIGKILL) })
	return identity
}

func TestRecycledPIDIsNeverSignaled(t *testing.T) {
	process := start(t, "sleep", "600")
	for name, other := range map[string]Identity{
		"other start": {PID: process.PID, StartTime: process.StartTime + 1, BootID: process.BootID},
		"other boot":  {PID: process.PID, StartTime: process.StartTime, BootID: "another"},
		"no PID":      {StartTime: process.StartTime, BootID: process.BootID},
	} {
		if other.Alive() {
			t.Errorf("%s: alive", name)
		}
		if err := other.Signal(syscall.SIGKILL); err == nil {
			t.Errorf("%s: signaled", name)
		}
		if err := Stop(t.Context(), time.Second, other); name != "no PID" && err != nil {
			t.Errorf("%s: stop: %v", name, err)
		}
	}
	if !process.Alive() {
		t.Fatal("the process was ended by the identity of another")
	}
}

func TestStopEndsTheStubborn(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	process := start(t, "sh", "-c", "trap '' TERM; : >"+ready+"; while :; do sleep 0.01; done")
	// The trap must be set before the signal comes, or the test tests nothing.
	for _, err := os.Stat(ready); err != nil; _, err = os.Stat(ready) {
		if !process.Alive() {
			t.Fatal("the process ended by itself")
		}
		time.Sleep(time.Millisecond)
	}
	begin := time.Now()
	if err := Stop(t.Context(), 100*time.Millisecond, process); err != nil {
		t.Fatal(err)
	}
	if process.Alive() {
		t.Error("still alive")
	}
	if time.Since(begin) < 100*time.Millisecond {
		t.Error("it ended before the grace period was over: it did not ignore the signal")
	}
	if err := process.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal after the end: %v", err)
	}
}

func TestStopOutlivesItsContext(t *testing.T) {
	process := start(t, "sleep", "600")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Stop(ctx, time.Minute, process); err != nil {
		t.Fatal(err)
	}
	if process.Alive() {
		t.Error("still alive")
	}
}

func TestStartedProcessHasItsOwnSession(t *testing.T) {
	process := start(t, "sleep", "600")
	group, err := syscall.Getpgid(process.PID)
	if err != nil {
		t.Fatal(err)
	}
	if group != process.PID {
		t.Errorf("process group %d, want %d", group, process.PID)
	}
}

func TestFind(t *testing.T) {
	word := fmt.Sprintf("600.%d", os.Getpid()) // that no other run of this test has
	process := start(t, "sleep", word)
	found, err := Find(func(argv []string) bool { return slices.Contains(argv, word) })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Identity{process}, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
