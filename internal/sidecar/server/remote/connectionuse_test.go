package remote

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote/remotetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// counted is a server that counts the connections that are made to it.
func counted(t *testing.T, handler http.Handler) (at *url.URL, connections *atomic.Int64) {
	t.Helper()
	connections = &atomic.Int64{}
	server := httptest.NewUnstartedServer(handler)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at, connections
}

// Calls one after the other use one connection, also if they are answered by streams.
func TestConnectionsAreUsedAgain(t *testing.T) {
	const calls = 50
	for name, test := range map[string]struct {
		handler http.Handler
		dial    func(t *testing.T, at *url.URL) *conversation
		call    func(id int) string
		most    int64
	}{
		"legacy": {streamableServer(nil), func(t *testing.T, at *url.URL) *conversation {
			dialed, err := New(connectionOptions(at)).DialStateful(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			c := converse(t, dialed)
			c.open()
			return c
		}, func(id int) string { return toolCall(id, "echo", "x") }, 10},
		"modern": {statelessServer(), func(t *testing.T, at *url.URL) *conversation {
			dialed, err := New(connectionOptions(at)).DialStateless(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return converse(t, dialed)
		}, func(id int) string { return enveloped(id, "tools/call", `"name":"echo","arguments":{"text":"x"},`) }, 10},
	} {
		t.Run(name, func(t *testing.T) {
			at, connections := counted(t, test.handler)
			c := test.dial(t, at)
			for i := range calls {
				if got := c.ask(test.call(i + 1)); !strings.Contains(got, `"x"`) {
					t.Fatalf("got %s", got)
				}
			}
			if got := connections.Load(); got > test.most {
				t.Errorf("%d connections for %d calls", got, calls)
			}
		})
	}
}

// R22: connections that are dialed and closed leave nothing behind, here or at the server.
func TestClosedConnectionsLeaveNothing(t *testing.T) {
	b := newBackend(t, streamableServer(nil))
	server := New(connectionOptions(b.URL("/mcp")))
	const rounds = 20
	for range rounds {
		dialed, err := server.DialStateful(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		c := converse(t, dialed)
		c.open()
		c.send(toolCall(1, "wait", ""))
		dialed.Close()
		if err := within(t, "end", c.ended); !errors.Is(err, session.ErrEnded) {
			t.Errorf("ended by %v", err)
		}
	}
	gomega.NewWithT(t).Eventually(func() int { return len(b.Requests("DELETE")) }).WithTimeout(hang.Guard).Should(gomega.Equal(rounds))
	gomega.NewWithT(t).Eventually(func() string {
		server.endpoint.Transport.CloseIdleConnections()
		http.DefaultClient.CloseIdleConnections()
		return remotetest.Left()
	}).WithTimeout(hang.Guard).Should(gomega.BeEmpty())
}

// J-03: an id may be used again as soon as it has been answered, also while the server
// has not ended the stream, which is not awaited for long.
func TestIDsAreUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan struct{}, 8)
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			say(w, "data: "+pong+"\n\n")
			<-r.Context().Done()
			gone <- struct{}{}
		})
		for _, c := range []*conversation{converse(t, pipeStateful(t, handler)), pipeStateless(t, handler)} {
			began := time.Now()
			for range 3 {
				if got := c.ask(enveloped(1, "tools/list", "")); got != pong {
					t.Errorf("got %s", got)
				}
			}
			for range 3 {
				<-gone
			}
			if took := time.Since(began); took != endWait {
				t.Errorf("streams ended after %v", took)
			}
		}
	})
}

// Streams come side by side; what is received comes one after the other, and nothing
// comes after the end.
func TestMessagesAreReceivedOneByOne(t *testing.T) {
	const streams, each = 3, 10
	b := newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		say(w, strings.Repeat("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n", each))
		<-r.Context().Done()
	}))
	dialed, err := New(connectionOptions(b.URL("/mcp"))).DialStateful(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var now atomic.Int64
	received, goOn, ended := make(chan struct{}, streams*each), make(chan struct{}), make(chan error, 1)
	dialed.Serve(func(session.Message) {
		if n := now.Add(1); n != 1 {
			t.Errorf("%d messages are received at a time", n)
		}
		received <- struct{}{}
		<-goOn
		now.Add(-1)
	}, func(reason error) { ended <- reason })
	for _, id := range []string{"1", "2", "3"} {
		if err := dialed.Send(t.Context(), session.Message{Bytes: []byte(strings.Replace(ping, "1", id, 1))}); err != nil {
			t.Fatal(err)
		}
	}
	for range streams*each - 2 {
		within(t, "a message", received)
		goOn <- struct{}{}
	}
	within(t, "a message", received)
	dialed.Close()
	if err := within(t, "the end", ended); !errors.Is(err, session.ErrEnded) {
		t.Errorf("ended by %v", err)
	}
	close(goOn)
	select {
	case <-received:
		t.Error("a message comes after the end")
	case <-time.After(50 * time.Millisecond): // for what must not happen
	}
}
