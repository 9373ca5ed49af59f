package listener

import (
	"net"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/test/hang"
)

// Connections beyond the limit are closed. One that ends leaves its place to the next, however often it is closed.
func TestBounded(t *testing.T) {
	t.Parallel()
	inner, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Bounded(inner, 2, logr.Discard())
	t.Cleanup(func() { _ = l.Close() })
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	refused := func() {
		t.Helper()
		c := dial()
		_ = c.SetReadDeadline(time.Now().Add(hang.Guard))
		if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("a connection too many: %v", err)
		}
	}
	dial()
	dial()
	first, second := <-accepted, <-accepted
	refused()
	refused()
	_ = first.Close()
	_ = first.Close()
	dial()
	third := <-accepted
	refused()
	_, _ = second.Close(), third.Close()
	dial()
	dial()
	<-accepted
	<-accepted
	refused()
	_ = l.Close()
	if _, ok := <-accepted; ok {
		t.Error("more connections than the limit")
	}
}
