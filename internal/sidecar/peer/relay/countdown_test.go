package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		ctx, cancel := within(t.Context(), DefaultDialTimeout)
		defer cancel()
		<-ctx.Done()
		if took := time.Since(begin); took != DefaultDialTimeout || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("ends after %v: %v", took, context.Cause(ctx))
		}
		ctx, cancel = within(t.Context(), time.Second)
		cancel()
		time.Sleep(time.Minute)
		if !errors.Is(context.Cause(ctx), context.Canceled) {
			t.Errorf("canceled: %v", context.Cause(ctx))
		}
	})
}

// pausedAddress is the variable that has this program be the process that pauses.
const pausedAddress = "SLIPWAY_TEST_PAUSED"

// TestPausedProcess stops a process while it waits for an answer, for longer than it waits. The answer comes meanwhile,
// and is no silence.
func TestPausedProcess(t *testing.T) {
	const timeout = time.Second
	if address := os.Getenv(pausedAddress); address != "" {
		waitForByte(t, address, timeout)
		return
	}
	l := listen(t)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPausedProcess$")
	child.Env = append(os.Environ(), pausedAddress+"="+l.Addr().String())
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan() // it waits now
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(timeout + timeout/10)
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	lines.Scan()
	if got := lines.Text(); got != "heard" {
		t.Errorf("the process says %q", got)
	}
	for lines.Scan() {
	}
	_ = child.Wait() // what it says counts
}

// waitForByte says which comes first: a byte, or the end of the time.
func waitForByte(t *testing.T, address string, timeout time.Duration) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := within(t.Context(), timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	fmt.Println("waiting")
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		fmt.Println("over")
		return
	}
	fmt.Println("heard")
}
