package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/test/hang"
)

// R52: by default the adapter accepts connections from its own machine only.
func TestR52DefaultIsLoopback(t *testing.T) {
	var o options
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	bindOptions(flags, &o)
	if err := flags.Parse(nil); err != nil {
		t.Fatal(err)
	}
	for name, address := range map[string]string{"listen": o.listen, "admin-listen": o.adminListen} {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		listener, err := listener.Listen(t.Context(), net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := netip.MustParseAddrPort(listener.Addr().String()); !got.Addr().IsLoopback() {
			t.Errorf("%s is %s, which listens at %s", name, address, got)
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	}
}

// R52: the same for the program itself, as the kernel reports it. The program has a network namespace of
// its own, so that no other sockets are there and its ports are free.
func TestR52ProgramListensOnLoopback(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can have a network of its own")
	}
	t.Parallel()
	var output bytes.Buffer
	program := exec.CommandContext(t.Context(), "sh", "-c", `ip link set lo up && exec "$0" serve -- cat`, os.Args[0])
	// Under the race detector it would take a second longer to exit.
	program.Env = append(os.Environ(), asSidecar+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	program.Stdout, program.Stderr = &output, &output
	program.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	program.Cancel = func() error { return program.Process.Signal(syscall.SIGTERM) }
	program.WaitDelay = hang.Guard
	if err := program.Start(); errors.Is(err, syscall.EPERM) {
		t.Skipf("no network of its own can be had: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	var found []netip.AddrPort
	gomega.NewWithT(t).Eventually(func() (int, error) {
		var err error
		found, err = listening(program.Process.Pid)
		return len(found), err
	}).WithTimeout(hang.Guard).Should(gomega.BeNumerically(">=", 2))
	for _, address := range found {
		if !address.Addr().IsLoopback() {
			t.Errorf("it listens at %s", address)
		}
	}
	t.Logf("it listens at %v", found)
	_ = program.Process.Signal(syscall.SIGTERM)
	if err := program.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("%v: %s", err, output.Bytes())
	}
}

// listening are the addresses that TCP sockets in the process's network listen at.
func listening(pid int) (found []netip.AddrPort, err error) {
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			const listens = "0A"
			fields := strings.Fields(line)
			if len(fields) < 4 || fields[3] != listens {
				continue
			}
			address, err := parseSocket(fields[1])
			if err != nil {
				return nil, err
			}
			found = append(found, address)
		}
	}
	return found, nil
}

// parseSocket reads an address as the kernel prints it: words in the order of this
// machine's bytes.
func parseSocket(text string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for i := 0; i+4 <= len(raw); i += 4 { // every machine that we build for is little-endian
		raw[i], raw[i+1], raw[i+2], raw[i+3] = raw[i+3], raw[i+2], raw[i+1], raw[i]
	}
	address, ok := netip.AddrFromSlice(raw)
	var number uint16
	if _, err := fmt.Sscanf(port, "%04X", &number); err != nil || !ok {
		return netip.AddrPort{}, fmt.Errorf("socket %q: %w", text, err)
	}
	return netip.AddrPortFrom(address.Unmap(), number), nil
}
