package cost

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-mcp/slipway/test/hang"
)

// The programs, as TestMain has built them.
var adapterProgram, emptyProgram, echoServer, bothServer string

// The programs are built without the race detector whatever the tests are built with,
// because it allocates.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "slipway-cost")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		adapterProgram, emptyProgram = filepath.Join(dir, "sidecar"), filepath.Join(dir, "netecho")
		echoServer, bothServer = filepath.Join(dir, "echo"), filepath.Join(dir, "both")
		err = build(dir, []string{"cmd/sidecar", "bench/bounds/netecho"}, []string{"test/servers/echo", "test/servers/both"})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// build builds programs of this module into a directory, some of them with
// testdata/meter.go in them.
func build(dir string, metered, others []string) error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	overlay, replaced := filepath.Join(dir, "overlay.json"), map[string]string{}
	args := []string{"build", "-ldflags=-w", "-overlay", overlay, "-o", dir + string(filepath.Separator)}
	for _, program := range metered {
		replaced[filepath.Join(here, "..", "..", program, "meter.go")] = filepath.Join(here, "testdata", "meter.go")
	}
	for _, program := range slices.Concat(metered, others) {
		args = append(args, "github.com/slipway-mcp/slipway/"+program)
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return err
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return err
	}
	command := exec.Command("go", args...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build programs: %w: %s", err, out)
	}
	return nil
}

// subject is a program with a meter.
type subject struct {
	t       *testing.T
	address string
	pid     int
	stdin   io.Writer
	said    chan statement
}

// statement is a line that matters: where it listens, or what it has allocated.
type statement struct {
	URL     string `json:"url"`
	Objects uint64 `json:"objects"`
	Bytes   uint64 `json:"bytes"`
}

// start runs a program until the test is over.
func start(t *testing.T, program string, args ...string) *subject {
	t.Helper()
	command := exec.Command(program, args...)
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = writer, writer
	if err := startOnOneCPU(command); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close() // it is the program's now
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait() // it may end by the signal
	})
	s := &subject{t: t, pid: command.Process.Pid, stdin: stdin, said: make(chan statement, 1)}
	go func() {
		defer func() { _ = output.Close() }()
		for lines := bufio.NewScanner(output); lines.Scan(); {
			var line statement
			if json.Unmarshal(lines.Bytes(), &line) == nil && line != (statement{}) {
				s.said <- line
			}
		}
	}()
	at, err := url.Parse(s.listen().URL)
	if err != nil {
		t.Fatal(err)
	}
	s.address = at.Host
	return s
}

// startOnOneCPU starts a program that, with all it starts, has one CPU. With more, how
// much there is to read at a time depends on how many.
func startOnOneCPU(command *exec.Cmd) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("ask for CPUs: %w", err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("ask for one CPU: %w", err)
	}
	defer func() { err = errors.Join(err, unix.SchedSetaffinity(0, &all)) }()
	return command.Start()
}

func (s *subject) listen() statement {
	s.t.Helper()
	select {
	case line := <-s.said:
		return line
	case <-time.After(hang.Guard):
		s.t.Fatal("the program says nothing")
	}
	return statement{}
}

// usage is what a process has used so far, or between two moments, or for each of
// several operations.
type usage struct{ objects, bytes, reads, writes float64 }

func (s *subject) usage() (u usage) {
	s.t.Helper()
	if _, err := io.WriteString(s.stdin, "\n"); err != nil {
		s.t.Fatal(err)
	}
	allocated := s.listen()
	u.objects, u.bytes = float64(allocated.Objects), float64(allocated.Bytes)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", s.pid))
	if err != nil {
		s.t.Skipf("the kernel does not say how often a process reads and writes: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			s.t.Fatalf("/proc/%d/io: %q", s.pid, line)
		}
		switch name {
		case "syscr":
			u.reads = number
		case "syscw":
			u.writes = number
		}
	}
	return u
}

// cheapest is the least that n operations used, for each of them, in several tries.
// What else happens in a process only ever adds to it.
func (s *subject) cheapest(n int, operations func()) (least usage) {
	s.t.Helper()
	operations() // buffers are made, connections are there
	const tries = 5
	for i := range tries {
		before := s.usage()
		operations()
		after := s.usage()
		now := usage{
			(after.objects - before.objects) / float64(n), (after.bytes - before.bytes) / float64(n),
			(after.reads - before.reads) / float64(n), (after.writes - before.writes) / float64(n),
		}
		s.t.Logf("try %d: %.2f objects, %.0f bytes, %.2f reads, %.2f writes", i+1, now.objects, now.bytes, now.reads, now.writes)
		if i == 0 {
			least = now
		}
		least = usage{min(least.objects, now.objects), min(least.bytes, now.bytes), min(least.reads, now.reads), min(least.writes, now.writes)}
	}
	return least
}
