package sidecar

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/test/hang"
)

// A client that does not finish its headers is not waited for longer than it may take.
func TestLongSlowHeaders(t *testing.T) {
	t.Parallel()
	_, address := startAdapter(t, nil)
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = conn.Write([]byte("POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: "))
	if err := conn.SetReadDeadline(time.Now().Add(hang.Guard)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is not closed")
	}
	if took := time.Since(begin); took < listener.HeaderTimeout {
		t.Errorf("the connection ended after %s, want after %s", took, listener.HeaderTimeout)
	}
}
