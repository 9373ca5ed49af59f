package proxy

import (
	"bufio"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/test/hang"
)

// However long a call may take, a client that stops in the middle of its body is not
// waited for.
func TestBodyThatStops(t *testing.T) {
	e := newEndpoint(t, newBackend(t, script("")), nil, func(o *edge.Options) {
		o.Budget = edgetest.Bodies(edge.BodyLimits{BodyBytes: 16 << 20, ReadTimeout: 50 * time.Millisecond})
	})
	at, err := url.Parse(e.URL)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetReadDeadline(time.Now().Add(hang.Guard)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(connection, "POST /mcp HTTP/1.1\r\nHost: mcp.example\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	if status, err := bufio.NewReader(connection).ReadString('\n'); err != nil || !strings.Contains(status, "408") {
		t.Errorf("got %q, %v; want 408", status, err)
	}
}
