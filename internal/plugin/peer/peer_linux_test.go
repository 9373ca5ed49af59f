package peer

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// accepted returns both ends of a connection, as the side sees it that accepts it.
func accepted(t *testing.T, connect func(port int)) (local, remote netip.AddrPort) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	connect(listener.Addr().(*net.TCPAddr).Port)
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.LocalAddr().(*net.TCPAddr).AddrPort(), conn.RemoteAddr().(*net.TCPAddr).AddrPort()
}

// socket opens one that the test itself closes.
func socket(t *testing.T, family int, to syscall.Sockaddr) int {
	t.Helper()
	opened, err := syscall.Socket(family, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Connect(opened, to); err != nil {
		t.Fatal(err)
	}
	return opened
}

func TestIsOwn(t *testing.T) {
	loopback := [4]byte{127, 0, 0, 1}
	mapped := [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}
	for name, connect := range map[string]func(port int) int{
		"IPv4": func(port int) int {
			return socket(t, syscall.AF_INET, &syscall.SockaddrInet4{Addr: loopback, Port: port})
		},
		"IPv4 by a socket of IPv6": func(port int) int {
			return socket(t, syscall.AF_INET6, &syscall.SockaddrInet6{Addr: mapped, Port: port})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var opened int
			local, remote := accepted(t, func(port int) { opened = connect(port) })
			if !IsOwn(local, remote) {
				t.Error("a connection of our own is not")
			}
			if IsOwn(local, netip.AddrPortFrom(remote.Addr(), remote.Port()^1)) {
				t.Error("a connection that does not exist is our own")
			}
			_ = syscall.Close(opened)
			if IsOwn(local, remote) {
				t.Error("a connection whose other end is closed is our own")
			}
		})
	}
}

// The kernel takes the user of a socket from the thread that opens it.
func TestIsOwnOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can open a socket as another user")
	}
	local, remote := accepted(t, func(port int) {
		done := make(chan int)
		go func() {
			// The goroutine does not unlock the thread, which ends with it.
			runtime.LockOSThread()
			_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, 65534, 0, 0)
			done <- socket(t, syscall.AF_INET, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port})
		}()
		opened := <-done
		t.Cleanup(func() { _ = syscall.Close(opened) })
	})
	if IsOwn(local, remote) {
		t.Error("a connection of another user is our own")
	}
}

// The lines of a table that are almost right.
func TestIsIn(t *testing.T) {
	const header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	if !isAt("0100007F:0050", netip.MustParseAddrPort("127.0.0.1:80")) {
		t.Skip("the lines are of a little-endian machine")
	}
	from, to := netip.MustParseAddrPort("127.0.0.1:40000"), netip.MustParseAddrPort("127.0.0.1:16270")
	for name, test := range map[string]struct {
		line string
		want bool
	}{
		"ours":          {"   1: 0100007F:9C40 0100007F:3F8E 01 00000000:00000000 00:00000000 00000000  1000        0 77 1", true},
		"of IPv6":       {"   1: 0000000000000000FFFF00000100007F:9C40 0000000000000000FFFF00000100007F:3F8E 01 0:0 0:0 0  1000        0 77 1", true},
		"of another":    {"   1: 0100007F:9C40 0100007F:3F8E 01 00000000:00000000 00:00000000 00000000  1001        0 77 1", false},
		"our own end":   {"   1: 0100007F:3F8E 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 77 1", false},
		"no process":    {"   1: 0100007F:9C40 0100007F:3F8E 01 00000000:00000000 00:00000000 00000000  1000        0 0 1", false},
		"closed":        {"   1: 0100007F:9C40 0100007F:3F8E 04 00000000:00000000 00:00000000 00000000  1000        0 77 1", false},
		"other address": {"   1: 0200007F:9C40 0100007F:3F8E 01 00000000:00000000 00:00000000 00000000  1000        0 77 1", false},
		"other server":  {"   1: 0100007F:9C40 0100007F:3F8F 01 00000000:00000000 00:00000000 00000000  1000        0 77 1", false},
		"cut":           {"   1: 0100007F:9C40 0100007F:3F8E 01", false},
		"no address":    {"   1: xyz 0100007F:3F8E 01 00000000:00000000 00:00000000 00000000  1000        0 77 1", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isIn(strings.NewReader(header+test.line+"\n"), from, to, 1000); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
