package launcher

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
)

// fakeLauncher speaks the protocol by hand.
type fakeLauncher struct {
	*conn
	t      *testing.T
	socket string
}

func connectTo(t *testing.T, socket string) *conn {
	t.Helper()
	c, err := dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

const testEpoch = "E1"

func newFake(t *testing.T, host *Host, socket string) *fakeLauncher {
	t.Helper()
	f := &fakeLauncher{conn: connectTo(t, socket), t: t, socket: socket}
	f.must(f.send(message{Kind: kindHello, Version: protocolVersion, Role: roleControl, Epoch: testEpoch}))
	if m, err := f.receiveWithin(hang.Guard); err != nil || m.Kind != kindWelcome {
		t.Fatalf("answer to hello: %+v, %v", m, err)
	}
	eventually(t, "the welcome is followed by requests", host.Connected)
	return f
}

func (f *fakeLauncher) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// raw writes bytes that may be no frame.
func (f *fakeLauncher) raw(c *conn, size uint32, body string) {
	f.t.Helper()
	_, err := c.Write(append(binary.BigEndian.AppendUint32(nil, size), body...))
	f.must(err)
}

// lifeline answers a request with these descriptors, which are closed here.
func (f *fakeLauncher) lifeline(hello message, files ...*os.File) *conn {
	f.t.Helper()
	life := connectTo(f.t, f.socket)
	hello.Kind, hello.Role = kindHello, roleProcess
	if hello.Version == 0 {
		hello.Version = protocolVersion
	}
	var fds []int
	for _, file := range files {
		raw, err := file.SyscallConn()
		f.must(err)
		f.must(raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) }))
	}
	f.must(life.send(hello, fds...))
	for _, file := range files {
		f.must(file.Close())
	}
	return life
}

// closed requires that the host hangs up.
func (f *fakeLauncher) closed(c *conn) {
	f.t.Helper()
	if m, err := c.receiveWithin(hang.Guard); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		f.t.Errorf("the connection stays open: %+v, %v", m, err)
	}
}

// newPipe is an os.Pipe whose first end is the one that is passed.
func newPipe(t *testing.T, passWriter bool) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if passWriter {
		r, w = w, r
	}
	t.Cleanup(func() { _ = w.Close() })
	return r
}

// newFile is something to pass that is not a pipe.
func newFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

type hostile struct {
	act         func(t *testing.T, f *fakeLauncher)
	keepControl bool // the control connection survives
}

func TestHostileLauncher(t *testing.T) {
	tests := map[string]hostile{
		"frame too large": {act: func(_ *testing.T, f *fakeLauncher) { f.raw(f.conn, maxFrame+1, "{"); f.closed(f.conn) }},
		"frame of 4 GiB":  {act: func(_ *testing.T, f *fakeLauncher) { f.raw(f.conn, 1<<32-1, "{"); f.closed(f.conn) }},
		"empty frame":     {act: func(_ *testing.T, f *fakeLauncher) { f.raw(f.conn, 0, ""); f.closed(f.conn) }},
		"not JSON":        {act: func(_ *testing.T, f *fakeLauncher) { f.raw(f.conn, 3, "abc"); f.closed(f.conn) }},
		"exit on control": {act: func(_ *testing.T, f *fakeLauncher) { f.must(f.send(message{Kind: kindExit})); f.closed(f.conn) }},
		"answer never asked": {act: func(_ *testing.T, f *fakeLauncher) {
			f.must(f.send(message{Kind: kindFailed, ID: 2}))
			f.closed(f.conn)
		}},
		"answer to nothing":    {act: func(_ *testing.T, f *fakeLauncher) { f.must(f.send(message{Kind: kindFailed})); f.closed(f.conn) }},
		"descriptors unwanted": {keepControl: true, act: func(_ *testing.T, f *fakeLauncher) { f.must(f.send(message{Kind: kindFailed, ID: 1}, 0, 1, 2)) }},
		"wrong epoch": {keepControl: true, act: func(t *testing.T, f *fakeLauncher) {
			f.closed(f.lifeline(message{Epoch: "E0", ID: 1}, newPipe(t, true), newPipe(t, false)))
		}},
		"wrong request": {keepControl: true, act: func(t *testing.T, f *fakeLauncher) {
			f.closed(f.lifeline(message{Epoch: testEpoch, ID: 2}, newPipe(t, true), newPipe(t, false)))
		}},
		"wrong version": {keepControl: true, act: func(t *testing.T, f *fakeLauncher) {
			life := f.lifeline(message{Epoch: testEpoch, ID: 1, Version: 99}, newPipe(t, true), newPipe(t, false))
			if m, err := life.receiveWithin(hang.Guard); err != nil || m.Kind != kindReject || !strings.Contains(m.Text, "version 99") {
				t.Errorf("answer: %+v, %v", m, err)
			}
			f.closed(life)
		}},
		"no descriptors": {keepControl: true, act: func(_ *testing.T, f *fakeLauncher) { f.closed(f.lifeline(message{Epoch: testEpoch, ID: 1})) }},
		"one descriptor": {keepControl: true, act: func(t *testing.T, f *fakeLauncher) {
			f.closed(f.lifeline(message{Epoch: testEpoch, ID: 1}, newPipe(t, true)))
		}},
		"too many": {keepControl: true, act: func(t *testing.T, f *fakeLauncher) {
			f.closed(f.lifeline(message{Epoch: testEpoch, ID: 1}, newPipe(t, true), newPipe(t, false), newPipe(t, false), newPipe(t, true)))
		}},
		"swapped": {keepControl: true, act: func(t *testing.T, f *fakeLauncher) {
			f.closed(f.lifeline(message{Epoch: testEpoch, ID: 1}, newPipe(t, false), newPipe(t, true)))
		}},
		"output not a pipe": {keepControl: true, act: func(t *testing.T, f *fakeLauncher) {
			f.closed(f.lifeline(message{Epoch: testEpoch, ID: 1}, newPipe(t, true), newFile(t)))
		}},
		"no hello": {keepControl: true, act: func(t *testing.T, f *fakeLauncher) {
			c := connectTo(t, f.socket)
			f.must(c.send(message{Kind: kindSpawn, Version: protocolVersion}))
			f.closed(c)
		}},
		"no such role": {keepControl: true, act: func(t *testing.T, f *fakeLauncher) {
			c := connectTo(t, f.socket)
			f.must(c.send(message{Kind: kindHello, Version: protocolVersion, Role: "boss"}, 0, 1))
			f.closed(c)
		}},
		"second launcher": {keepControl: true, act: func(t *testing.T, f *fakeLauncher) {
			c := connectTo(t, f.socket)
			f.must(c.send(message{Kind: kindHello, Version: protocolVersion, Role: roleControl, Epoch: "E2"}))
			if m, err := c.receiveWithin(hang.Guard); err != nil || m.Kind != kindReject {
				t.Errorf("answer: %+v, %v", m, err)
			}
			f.closed(c)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			socket := newSocket(t)
			host := listen(t, socket, HostOptions{})
			before := descriptors(t, os.Getpid())
			t.Run("acts", func(t *testing.T) { test.run(t, host, socket) })
			eventually(t, "the host is free", func() bool { return !host.Connected() })
			eventually(t, "descriptors are closed", func() bool { return descriptors(t, os.Getpid()) <= before })
			newFake(t, host, socket) // the next one is served
		})
	}
}

// run acts while a request is outstanding, which must not be satisfied.
func (test hostile) run(t *testing.T, host *Host, socket string) {
	f := newFake(t, host, socket)
	ctx, cancel := context.WithCancel(t.Context())
	spawned := make(chan error, 1)
	go func() {
		_, err := host.Spawn(ctx, "x")
		spawned <- err
	}()
	if m, err := f.receiveWithin(hang.Guard); err != nil || m.Kind != kindSpawn || m.ID != 1 {
		t.Fatalf("request: %+v, %v", m, err)
	}
	test.act(t, f)
	if test.keepControl && !host.Connected() {
		t.Error("the control connection was closed too")
	}
	cancel()
	if err := <-spawned; err == nil {
		t.Error("a process was started")
	}
}

func TestHostileLifeline(t *testing.T) {
	tests := map[string]struct {
		act  func(f *fakeLauncher, life *conn)
		want Exit
	}{
		"garbage":            {func(f *fakeLauncher, life *conn) { f.raw(life, 3, "abc") }, Exit{Lost: true}},
		"closed":             {func(f *fakeLauncher, life *conn) { f.must(life.Close()) }, Exit{Lost: true}},
		"exit without one":   {func(f *fakeLauncher, life *conn) { f.must(life.send(message{Kind: kindExit})) }, Exit{Lost: true}},
		"something else":     {func(f *fakeLauncher, life *conn) { f.must(life.send(message{Kind: kindSpawn})) }, Exit{Lost: true}},
		"half a frame":       {func(f *fakeLauncher, life *conn) { f.raw(life, 10, "{"); f.must(life.Close()) }, Exit{Lost: true}},
		"control connection": {func(f *fakeLauncher, _ *conn) { f.must(f.Close()) }, Exit{Lost: true}},
		"absurd figures": {
			func(f *fakeLauncher, life *conn) {
				f.must(life.send(message{Kind: kindExit, Exit: &ended{Code: -7, Signal: 1 << 20, Stderr: strings.Repeat("x", 3*maxTail), Head: strings.Repeat("y", 3*maxHead)}}))
			},
			Exit{Signal: 64, Stderr: strings.Repeat("x", maxTail), StderrHead: strings.Repeat("y", maxHead)},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			socket := newSocket(t)
			host := listen(t, socket, HostOptions{})
			f := newFake(t, host, socket)
			spawned := make(chan *Process, 1)
			go func() {
				process, err := host.Spawn(t.Context(), "x")
				if err != nil {
					t.Error(err)
				}
				spawned <- process
			}()
			if m, err := f.receiveWithin(hang.Guard); err != nil || m.Kind != kindSpawn {
				t.Fatalf("request: %+v, %v", m, err)
			}
			life := f.lifeline(message{Epoch: testEpoch, ID: 1, PID: 42}, newPipe(t, true), newPipe(t, false))
			process := <-spawned
			if process == nil || process.PID != 42 {
				t.Fatalf("process %+v", process)
			}
			test.act(f, life)
			if exit := exitOf(t, process); exit != test.want {
				t.Errorf("exit %+v, want %+v", exit, test.want)
			}
			process.abandon() // still harmless
		})
	}
}

func TestStopIsPassedOn(t *testing.T) {
	socket := newSocket(t)
	host := listen(t, socket, HostOptions{})
	f := newFake(t, host, socket)
	go func() { _, _ = host.Spawn(t.Context(), "x") }()
	if _, err := f.receiveWithin(hang.Guard); err != nil {
		t.Fatal(err)
	}
	life := f.lifeline(message{Epoch: testEpoch, ID: 1}, newPipe(t, true), newPipe(t, false))
	eventually(t, "the lifeline is adopted", func() bool { return !host.idle() })
	link, _ := host.current()
	link.mu.Lock()
	for c := range link.lifelines {
		c.stop(1500 * time.Millisecond)
	}
	link.mu.Unlock()
	if m, err := life.receiveWithin(hang.Guard); err != nil || m.Kind != kindStop || m.Grace != 1500 {
		t.Errorf("stop: %+v, %v", m, err)
	}
}

func TestPeerUser(t *testing.T) {
	uid := uint32(os.Getuid())
	tests := map[string]struct {
		allowed []uint32
		want    bool
	}{
		"any user": {nil, true},
		"us":       {[]uint32{12345, uid}, true},
		"no user":  {[]uint32{}, false},
		"another":  {[]uint32{uid + 1}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			socket := newSocket(t)
			host := listen(t, socket, HostOptions{AllowedUIDs: test.allowed})
			c := connectTo(t, socket)
			_ = c.send(message{Kind: kindHello, Version: protocolVersion, Role: roleControl, Epoch: testEpoch})
			m, err := c.receiveWithin(hang.Guard)
			if got := err == nil && m.Kind == kindWelcome; got != test.want {
				t.Errorf("welcome %v (%v), want %v", got, err, test.want)
			}
			if !test.want && host.Connected() {
				t.Error("the launcher connected")
			}
		})
	}
}

func TestListen(t *testing.T) {
	socket := newSocket(t)
	first := listen(t, socket, HostOptions{})
	first.listener.SetUnlinkOnClose(false) // as when it is killed
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	listen(t, socket, HostOptions{})
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != socketMode {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	file := newSocket(t)
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(file, HostOptions{}); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("in the place of a file: %v", err)
	}
	if _, err := Listen("/no/such/directory/s", HostOptions{}); err == nil {
		t.Error("listens nowhere")
	}
}

func TestWaitConnected(t *testing.T) {
	socket := newSocket(t)
	host := listen(t, socket, HostOptions{})
	if _, err := host.Spawn(t.Context(), "x"); !errors.Is(err, ErrNoLauncher) {
		t.Errorf("spawn: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := host.WaitConnected(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	waited := make(chan error)
	go func() { waited <- host.WaitConnected(t.Context()) }()
	newFake(t, host, socket)
	if err := <-waited; err != nil {
		t.Error(err)
	}
	_ = host.Close()
	if err := host.WaitConnected(t.Context()); err == nil {
		t.Error("a closed host is connected")
	}
}

func TestExitString(t *testing.T) {
	tests := map[string]Exit{
		"exit code 3":                           {Code: 3},
		"signal 9 (killed)":                     {Signal: syscall.SIGKILL},
		"out of memory: killed by the kernel":   {Signal: syscall.SIGKILL, OOM: true},
		"the connection to its container broke": {Lost: true},
	}
	for want, exit := range tests {
		if got := exit.String(); got != want {
			t.Errorf("%+v is %q, want %q", exit, got, want)
		}
	}
}
