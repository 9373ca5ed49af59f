package listener

import (
	"net"
	"syscall"
	"testing"
)

// R04: the kernel notices the end of every peer, also of one that vanishes.
func TestR04KernelWatchesConnections(t *testing.T) {
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	there, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = there.Close() }()
	here, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = here.Close() }()
	raw, err := here.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const tcpUserTimeout = 18
	for name, test := range map[string]struct{ level, option, want int }{
		"is watched":           {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
		"silence, s":           {syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 15},
		"between questions, s": {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 5},
		"questions":            {syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 3},
		"unacknowledged, ms":   {syscall.IPPROTO_TCP, tcpUserTimeout, 30_000},
	} {
		var got int
		var getErr error
		if err := raw.Control(func(fd uintptr) { got, getErr = syscall.GetsockoptInt(int(fd), test.level, test.option) }); err != nil || getErr != nil {
			t.Fatal(err, getErr)
		}
		if got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
}
