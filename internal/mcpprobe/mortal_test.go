package mcpprobe

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
)

// The transport keeps a connection for later that is not in use, and one whose request
// ended while it was dialed. Neither outlasts the session, though nothing asks the
// transport to close them afterwards.
func TestConnectionsEndWithTheSession(t *testing.T) {
	closed := make(chan struct{}, 8)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()
	life, end := context.WithCancel(t.Context())
	defer end()
	tripper, err := newRoundTripper(life, newGuard(Options{}.withDefaults()), HTTP(server.URL, nil))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := tripper.transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	end()
	late, err := tripper.transport.DialContext(t.Context(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, which := range []string{"one connection", "both connections"} {
		select {
		case <-closed:
		case <-time.After(hang.Guard):
			t.Fatalf("the server does not see the end of %s", which)
		}
	}
	_ = late.Close()
}
