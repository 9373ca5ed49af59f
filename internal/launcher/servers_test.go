package launcher

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
)

// helper is one of the programs that the tests start.
func helper(name string, args []string) int {
	switch name {
	case "launcher":
		return helperLauncher(args)
	case "pid1":
		return helperPID1(args)
	case "init":
		exit, err := Init(args)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return exit.ProcessCode()
	case "signals":
		return helperSignals()
	case "echo":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "exit": // when told to, with these words
		fmt.Println("ready")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Fprintln(os.Stderr, args[1])
		code, _ := strconv.Atoi(args[0])
		return code
	case "flood": // standard error, before the first answer
		size, _ := strconv.Atoi(args[0])
		_, _ = os.Stderr.Write(bytes.Repeat([]byte("a line of 64 bytes, of which there are going to be very many...\n"), size/64))
		fmt.Println("done")
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "blast": // writes all before it reads anything
		size, _ := strconv.Atoi(args[0])
		_, _ = os.Stdout.Write(pattern(size, 1))
		_, _ = io.CopyN(os.Stdout, os.Stdin, int64(size))
	case "environ":
		fmt.Println(strings.Join(os.Environ(), "\n"))
		adjustment, _ := os.ReadFile("/proc/self/oom_score_adj")
		fmt.Printf("OOM=%sEND\n", adjustment)
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "tree":
		helperTree()
	case "escape": // leaves a process behind that nothing ties to it but the pipes
		cmd := exec.CommandContext(context.Background(), "sleep", "1000")
		cmd.Env, cmd.Stdout, cmd.Stderr = []string{}, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = cmd.Start()
		fmt.Println("escaped", cmd.Process.Pid)
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "slow":
		startBranch("heavy")
		helperBranch("leader")
	case "branch":
		helperBranch(args[0])
	}
	return 0
}

func pattern(size, seed int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte((i*7 + i>>8 + seed) % 251)
	}
	return data
}

// branches are the processes of a tree and how each is started: as a plain child,
// as one that ignores TERM with a child of its own, as the leader of a session,
// and as a daemon that forked twice.
var branches = []string{"plain", "stubborn", "grandchild", "setsid", "daemon"}

// helperTree is the leader. Each process writes its name and number.
func helperTree() {
	for _, kind := range []string{"plain", "stubborn", "setsid", "forker"} {
		startBranch(kind)
	}
	helperBranch("leader")
}

func startBranch(kind string) {
	cmd := exec.CommandContext(context.Background(), os.Args[0], "helper", "branch", kind)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: slices.Contains([]string{"setsid", "forker", "daemon", "heavy"}, kind)}
	if err := cmd.Start(); err != nil {
		fmt.Println(kind, err)
	}
}

func helperBranch(kind string) {
	switch kind {
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		startBranch("grandchild")
	case "setsid", "daemon":
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	case "forker":
		startBranch("daemon")
		return
	case "heavy": // takes long to die, and keeps its child for so long
		// The kernel fills it: under the race detector that takes us seconds.
		if _, err := syscall.Mmap(-1, 0, 256<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_POPULATE); err != nil {
			fmt.Println(kind, err)
		}
		startBranch("daemon")
	}
	fmt.Println(kind, os.Getpid())
	for {
		time.Sleep(time.Hour)
	}
}

// readTree reads the numbers of a tree's processes.
func readTree(t *testing.T, process *Process) map[string]int {
	t.Helper()
	return readPIDs(t, process, len(branches)+1)
}

func readPIDs(t *testing.T, process *Process, count int) map[string]int {
	t.Helper()
	if err := process.Stdout.SetReadDeadline(time.Now().Add(hang.Guard)); err != nil {
		t.Fatal(err)
	}
	pids := map[string]int{}
	lines := bufio.NewScanner(process.Stdout)
	for len(pids) < count && lines.Scan() {
		name, number, _ := strings.Cut(lines.Text(), " ")
		pid, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("tree: %q", lines.Text())
		}
		pids[name] = pid
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for name, pid := range pids {
		if !running(pid) {
			t.Fatalf("%s (%d) does not run", name, pid)
		}
	}
	return pids
}

// readWords reads what a process must write next.
func readWords(t *testing.T, process *Process, want string) {
	t.Helper()
	if err := process.Stdout.SetReadDeadline(time.Now().Add(hang.Guard)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(process.Stdout, got); err != nil || string(got) != want {
		t.Fatalf("process %d wrote %q, %v; want %q", process.PID, got, err, want)
	}
}

// echoes checks that a process answers.
func echoes(t *testing.T, process *Process) {
	t.Helper()
	want := fmt.Sprintf("to %d\n", process.PID)
	if _, err := process.Stdin.WriteString(want); err != nil {
		t.Fatal(err)
	}
	readWords(t, process, want)
}
