package launcher

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slipway-mcp/slipway/test/hang"
)

// Both ways of starting processes must behave the same.
func eachSpawner(t *testing.T, test func(t *testing.T, from spawner), command ...string) {
	t.Run("launcher", func(t *testing.T) {
		host, _ := startPair(t, nil, command...)
		test(t, host)
	})
	t.Run("direct", func(t *testing.T) {
		test(t, newDirect(t, Options{Command: helperCommand(command...)}))
	})
}

func newDirect(t *testing.T, opts Options) *Direct {
	t.Helper()
	if opts.Stderr == nil {
		opts.Stderr = &safeBuffer{}
	}
	opts.Grace, opts.slack = hang.Guard, hang.Guard
	direct, err := NewDirect(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := direct.Close(); err != nil {
			t.Error(err)
		}
	})
	return direct
}

// atOnce requires that one of several attempts takes hardly any time. What else the
// machine does only ever adds to it.
func atOnce(t *testing.T, attempt func() time.Duration) {
	t.Helper()
	const attempts, limit = 20, 500 * time.Millisecond
	best := hang.Guard
	for n := 0; n < attempts && best > limit; n++ {
		best = min(best, attempt())
	}
	if best > limit {
		t.Errorf("the end was seen after %v in the best of %d attempts, want at once", best, attempts)
	}
}

func TestR06ExitIsSeenAtOnceWithStandardError(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		end  func(t *testing.T, process *Process)
		want Exit
	}{
		"code": {
			end: func(t *testing.T, process *Process) {
				if _, err := io.WriteString(process.Stdin, "go\n"); err != nil {
					t.Error(err)
				}
			},
			want: Exit{Code: 3, Stderr: "cannot open /data\n"},
		},
		"end of input": {
			end:  func(_ *testing.T, process *Process) { _ = process.Stdin.Close() },
			want: Exit{Code: 3, Stderr: "cannot open /data\n"},
		},
		"signal": {
			end: func(t *testing.T, process *Process) {
				if err := syscall.Kill(process.PID, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			},
			want: Exit{Signal: syscall.SIGKILL},
		},
		"stopped": {
			end:  func(_ *testing.T, process *Process) { process.Stop(hang.Guard) },
			want: Exit{Signal: syscall.SIGTERM},
		},
		"stopped without grace": {
			end:  func(_ *testing.T, process *Process) { process.Stop(0) },
			want: Exit{Signal: syscall.SIGKILL},
		},
	}
	eachSpawner(t, func(t *testing.T, from spawner) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				atOnce(t, func() time.Duration {
					process := spawn(t, from)
					readWords(t, process, "ready\n")
					began := time.Now()
					test.end(t, process)
					exit := exitOf(t, process)
					took := time.Since(began)
					if diff := cmp.Diff(test.want, exit); diff != "" {
						t.Fatalf("exit (-want +got):\n%s", diff)
					}
					return took
				})
			})
		}
	}, "exit", "3", "cannot open /data")
}

func TestR03NothingOfATreeIsLeft(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		end  func(process *Process)
		want Exit
	}{
		"stopped":     {func(process *Process) { process.Stop(hang.Guard) }, Exit{Signal: syscall.SIGTERM}},
		"killed":      {func(process *Process) { process.Stop(0) }, Exit{Signal: syscall.SIGKILL}},
		"leader died": {func(process *Process) { _ = syscall.Kill(process.PID, syscall.SIGSEGV) }, Exit{Code: 2}},
	}
	eachSpawner(t, func(t *testing.T, from spawner) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				neighbor := readTree(t, spawn(t, from))
				process := spawn(t, from)
				pids := readTree(t, process)
				test.end(process)
				if diff := cmp.Diff(test.want, exitOf(t, process), cmpopts.IgnoreFields(Exit{}, "Stderr", "StderrHead")); diff != "" {
					t.Errorf("exit (-want +got):\n%s", diff)
				}
				for name, pid := range pids {
					eventually(t, fmt.Sprintf("%s (%d) is dead", name, pid), func() bool { return !running(pid) })
				}
				// No process holds the pipe any more.
				if rest, err := io.ReadAll(process.Stdout); err != nil || len(rest) > 0 {
					t.Errorf("standard output goes on with %q, %v", rest, err)
				}
				for name, pid := range neighbor {
					if !running(pid) {
						t.Errorf("%s of another session is dead", name)
					}
				}
			})
		}
	}, "tree")
}

func TestR03ChildOfOneThatIsLongInDying(t *testing.T) {
	t.Parallel()
	eachSpawner(t, func(t *testing.T, from spawner) {
		process := spawn(t, from)
		pids := readPIDs(t, process, 3)
		process.Stop(0)
		exitOf(t, process)
		for name, pid := range pids {
			eventually(t, fmt.Sprintf("%s (%d) is dead", name, pid), func() bool { return !running(pid) })
		}
	}, "slow")
}

// A process that hides completely is out of reach, but does not delay the exit.
func TestR06ExitDoesNotWaitForEscapees(t *testing.T) {
	t.Parallel()
	eachSpawner(t, func(t *testing.T, from spawner) {
		atOnce(t, func() time.Duration {
			process := spawn(t, from)
			escaped := readPIDs(t, process, 1)["escaped"]
			began := time.Now()
			_ = process.Stdin.Close()
			exitOf(t, process)
			took := time.Since(began)
			if !running(escaped) {
				t.Error("the escapee was found after all: say so in doc.go")
			}
			_ = syscall.Kill(escaped, syscall.SIGKILL)
			return took
		})
	}, "escape")
}

func TestR46StandardErrorNeverBlocks(t *testing.T) {
	t.Parallel()
	const size = 1 << 20 // many times what a pipe holds
	t.Run("read", func(t *testing.T) {
		eachSpawner(t, func(t *testing.T, from spawner) {
			process := spawn(t, from)
			readWords(t, process, "done\n")
			_ = process.Stdin.Close()
			exit := exitOf(t, process)
			if !strings.HasSuffix(exit.Stderr, "very many...\n") || !strings.HasPrefix(exit.Stderr, "a line of ") || len(exit.Stderr) > maxTail || !strings.HasPrefix(exit.StderrHead, "a line of ") {
				t.Errorf("standard error: %d bytes, %.80q, after %.80q", len(exit.Stderr), exit.Stderr, exit.StderrHead)
			}
		}, "flood", strconv.Itoa(size))
	})
	t.Run("the container's log is not read", func(t *testing.T) {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		direct := newDirect(t, Options{Command: helperCommand("flood", strconv.Itoa(size)), Stderr: writer})
		for range 4 { // more than the queue and what is being written hold together
			readWords(t, spawn(t, direct), "done\n")
		}
		said := make(chan struct{})
		go func() {
			dropped := regexp.MustCompile(`^launcher: \d+ lines of standard error were dropped`)
			for lines := bufio.NewScanner(reader); lines.Scan(); {
				if dropped.Match(lines.Bytes()) {
					close(said)
					break
				}
			}
			_, _ = io.Copy(io.Discard, reader)
		}()
		select {
		case <-said:
		case <-time.After(hang.Guard):
			t.Error("the log does not say that lines were dropped")
		}
		if err := direct.Close(); err != nil {
			t.Error(err)
		}
		_ = writer.Close()
	})
}

func TestStandardErrorIsLoggedWithTheLabel(t *testing.T) {
	t.Parallel()
	log := &safeBuffer{}
	direct := newDirect(t, Options{Command: helperCommand("exit", "0", "first\nsecond"), Stderr: log})
	process, err := direct.Spawn(t.Context(), "session a]\n")
	if err != nil {
		t.Fatal(err)
	}
	readWords(t, process, "ready\n")
	_ = process.Stdin.Close()
	_ = process.Stdout.Close()
	exitOf(t, process)
	want := "[session_a__] first\n[session_a__] second\n"
	eventually(t, "the lines are logged", func() bool { return log.String() == want })
}

func TestR47BothDirectionsAtOnce(t *testing.T) {
	t.Parallel()
	const size = 256 << 10 // more than both pipes hold
	eachSpawner(t, func(t *testing.T, from spawner) {
		process := spawn(t, from)
		sent := pattern(size, 2)
		var writing sync.WaitGroup
		defer writing.Wait()
		writing.Go(func() {
			if _, err := process.Stdin.Write(sent); err != nil {
				t.Error(err)
			}
			_ = process.Stdin.Close()
		})
		got, err := io.ReadAll(process.Stdout)
		if err != nil {
			t.Fatal(err)
		}
		if want := append(pattern(size, 1), sent...); !bytes.Equal(got, want) {
			t.Errorf("got %d bytes, want %d others", len(got), len(want))
		}
	}, "blast", strconv.Itoa(size))
}

func TestProcessEnvironment(t *testing.T) {
	t.Setenv(sessionVariable, "of-an-outer-launcher")
	eachSpawner(t, func(t *testing.T, from spawner) {
		marks := map[string]bool{}
		for range 2 {
			process := spawn(t, from)
			if err := process.Stdout.SetReadDeadline(time.Now().Add(hang.Guard)); err != nil {
				t.Fatal(err)
			}
			var text []byte
			for buffer := make([]byte, 4096); !bytes.Contains(text, []byte("END\n")); {
				n, err := process.Stdout.Read(buffer)
				if err != nil {
					t.Fatal(err)
				}
				text = append(text, buffer[:n]...)
			}
			found := regexp.MustCompile(`(?m)^`+sessionVariable+`=(.*)$`).FindAllStringSubmatch(string(text), -1)
			if len(found) != 1 {
				t.Fatalf("marks: %q", found)
			}
			marks[found[0][1]] = true
			// The write races with the process's own look, so look again.
			eventually(t, "oom_score_adj is 1000", func() bool {
				data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", process.PID))
				return string(data) == "1000\n"
			})
		}
		if len(marks) != 2 || marks["of-an-outer-launcher"] {
			t.Errorf("marks are not one per session: %v", marks)
		}
	}, "environ")
}

func TestCommandThatCannotStart(t *testing.T) {
	dir := t.TempDir()
	script, text := dir+"/script", dir+"/text"
	for path, mode := range map[string]os.FileMode{script: 0o755, text: 0o644} {
		if err := os.WriteFile(path, []byte("#!/no/such/interpreter\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		command string
		want    string
	}{
		"not in PATH":    {"no-such-server", `start command "no-such-server": not found in PATH`},
		"no such file":   {"/no/such/server", `start command "/no/such/server": no such file or directory`},
		"no interpreter": {script, "interpreter"},
		"not a program":  {text, "permission denied"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			eachSpawner(t, func(t *testing.T, from spawner) {
				before := descriptors(t, os.Getpid())
				_, err := from.Spawn(t.Context(), "x")
				if start, ok := errors.AsType[*StartError](err); !ok || !strings.Contains(start.Message, test.want) {
					t.Errorf("error %v (%T), want a StartError with %q", err, err, test.want)
				}
				eventually(t, "descriptors are closed", func() bool { return descriptors(t, os.Getpid()) <= before })
			}, "="+test.command)
		})
	}
}

func TestDirectLeavesOtherChildrenAlone(t *testing.T) {
	t.Parallel()
	direct := newDirect(t, Options{Command: helperCommand("echo")})
	process := spawn(t, direct)
	echoes(t, process)
	// A launcher is started and waited for by os/exec in the same process.
	_, l := startPair(t, nil, "echo")
	process.Stop(0)
	exitOf(t, process)
	if err := l.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-l.exited
	if !l.ProcessState.Success() {
		t.Errorf("the other child: %v\n%s", l.ProcessState, l.log)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := direct.Spawn(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("spawn without a context: %v", err)
	}
}

func TestNoCommand(t *testing.T) {
	if _, err := NewDirect(Options{}); err == nil {
		t.Error("a Direct without a command was made")
	}
	if err := Run(t.Context(), "unused", Options{Command: []string{""}}); err == nil {
		t.Error("a launcher without a command ran")
	}
}
