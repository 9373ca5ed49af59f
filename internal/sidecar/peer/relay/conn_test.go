package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// A pod that was cut off gets nothing more of a request when the network is whole again.
func TestAbortedConnectionSendsNothingMore(t *testing.T) {
	l := listen(t)
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	pod, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pod.Close() }()
	sent := fill(t, raw)
	new(Relay).newConn(raw, nil).abort()
	got, err := io.Copy(io.Discard, pod)
	if !errors.Is(err, syscall.ECONNRESET) || got >= sent {
		t.Errorf("the pod got %d of %d bytes, and then %v, want fewer and a reset", got, sent, err)
	}
}

// fill writes to a connection whose other end does not read, until the kernel takes no more.
func fill(t *testing.T, c net.Conn) (sent int64) {
	t.Helper()
	if err := c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	piece := make([]byte, 64<<10)
	for {
		n, err := c.Write(piece)
		sent += int64(n)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return sent
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
