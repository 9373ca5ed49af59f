package streamable

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// bigServer answers a call by a large result, after a notification if there is one.
type bigServer struct {
	opened *session.Session
	before string
	size   int
}

func (b *bigServer) Send(context.Context, session.Message) error {
	go func() {
		for _, text := range []string{b.before, `{"jsonrpc":"2.0","id":5,"result":{"x":"` + strings.Repeat("x", b.size) + `"}}`} {
			if envelope, err := rpc.Scan([]byte(text)); err == nil {
				b.opened.Deliver(session.Message{Bytes: []byte(text), Envelope: envelope})
			}
		}
	}()
	return nil
}

func (*bigServer) Close() {}

// steady is a client that reads so many bytes in a second.
type steady struct {
	sink
	rate, got int
	deadline  time.Time
}

func (s *steady) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(len(b)) * time.Second / time.Duration(s.rate))
	if time.Now().After(s.deadline) {
		return 0, os.ErrDeadlineExceeded
	}
	s.got += len(b)
	return len(b), nil
}

func (s *steady) Flush() {}

func (s *steady) SetWriteDeadline(at time.Time) error {
	s.deadline = at
	return nil
}

// A client that keeps reading must get all of a large answer, however long it takes.
func TestLargeAnswerToSteadyReader(t *testing.T) {
	const size, timeout = 4 << 20, time.Second
	for name, test := range map[string]struct {
		before string // what the server says before its answer
		rate   int
		all    bool
	}{
		"an event":           {`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`, size / 10, true},
		"a body":             {"", size / 10, true},
		"an event, too slow": {`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`, 32 << 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &bigServer{before: test.before, size: size}
				server.opened = session.New(server, testLimits, &session.Metrics{})
				server.opened.Revision = revision20250618
				server.opened.Owner = caller.NewOwner(&caller.Caller{})
				registry := session.NewRegistry(session.Policy{Max: 1, IdleTimeout: time.Hour, MaxLifetime: time.Hour})
				slot, err := registry.Reserve(t.Context(), &caller.Caller{})
				if err != nil {
					t.Fatal(err)
				}
				slot.Fill(t.Context(), "s", server.opened)
				handler := New(Options{
					Sessions: registry, OpenTimeout: time.Hour,
					WriteTimeout: timeout, KeepAlive: time.Hour, Retry: time.Hour,
				})
				request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{}}`))
				request.Header.Set("Content-Type", typeJSON)
				request.Header.Set("Accept", typeJSON+", "+typeEvents)
				request.Header.Set(headerSession, "s")
				client := &steady{sink: sink{http.Header{}}, rate: test.rate}
				edgetest.At(handler.Route()).ServeHTTP(client, request)
				if all := client.got >= size; all != test.all {
					t.Errorf("got %d bytes of %d", client.got, size)
				}
				server.opened.End(errors.New("over"))
			})
		})
	}
}

// What a client announces and does not send costs next to nothing, and is not
// waited for.
func TestAnnouncedBodies(t *testing.T) {
	e := newEndpoint(t, nil, bodies(16<<20, 100*time.Millisecond))
	address := strings.TrimPrefix(e.url, "http://")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	connections := make([]net.Conn, 50)
	for i := range connections {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = connection.Close() }()
		if err := connection.SetReadDeadline(time.Now().Add(hang.Guard)); err != nil {
			t.Fatal(err)
		}
		connections[i] = connection
		if _, err := fmt.Fprintf(connection, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", 16<<20); err != nil {
			t.Fatal(err)
		}
	}
	for _, connection := range connections {
		status, err := bufio.NewReader(connection).ReadString('\n')
		if err != nil || !strings.Contains(status, "408") {
			t.Errorf("got %q, %v; want 408", status, err)
		}
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
		t.Errorf("fifty announcements of 16 MiB took %d MiB", took>>20)
	}
}
