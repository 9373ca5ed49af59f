package sse

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
)

// A client that stops in the middle of its body is not waited for.
func TestBodyThatStops(t *testing.T) {
	e := newEndpoint(t, func(e *endpoint, _ *Options) { e.bodies.ReadTimeout = 50 * time.Millisecond })
	c := e.connect()
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(e.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetReadDeadline(time.Now().Add(hang.Guard)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", c.postTo); err != nil {
		t.Fatal(err)
	}
	if status, err := bufio.NewReader(connection).ReadString('\n'); err != nil || !strings.Contains(status, "408") {
		t.Errorf("got %q, %v; want 408", status, err)
	}
}
