package streamable

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/wire"
)

type bigServer struct{ deliver func(string) }

func (b *bigServer) Send(_ context.Context, m []byte) error {
	e, err := wire.Scan(m)
	if err != nil {
		return err
	}
	id := string(e.ID.Of(m))
	switch string(e.Method) {
	case "initialize":
		go b.deliver(`{"jsonrpc":"2.0","id":` + id + `,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"b","version":"1"}}}`)
	case "tools/call":
		go func() {
			b.deliver(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
			b.deliver(`{"jsonrpc":"2.0","id":` + id + `,"result":{"x":"` + strings.Repeat("x", 40<<20) + `"}}`)
		}()
	}
	return nil
}
func (b *bigServer) Close() {}

// A client that keeps reading must get all of a large event, however long it takes.
func TestLargeEventToSteadyReader(t *testing.T) {
	e := newEndpoint(t, func(o *Options) {
		o.WriteTimeout = 500 * time.Millisecond
		o.Open = func(context.Context) (*session.Session, error) {
			b := &bigServer{}
			opened := session.New(b, testLimits, &session.Metrics{})
			b.deliver = func(text string) {
				m := []byte(text)
				envelope, err := wire.Scan(m)
				if err != nil {
					panic(err)
				}
				opened.Deliver(session.Message{Bytes: m, Envelope: envelope})
			}
			return opened, nil
		}
	})
	id := e.openSession("2025-06-18")
	response := e.post(id, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{}}`)
	if response.StatusCode != http.StatusOK {
		t.Fatal(response.Status)
	}
	total, chunk := 0, make([]byte, 1<<20)
	for {
		n, err := io.ReadFull(response.Body, chunk)
		total += n
		if err != nil {
			if total < 40<<20 || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("cut after %d bytes: %v", total, err)
			}
			return
		}
		time.Sleep(50 * time.Millisecond) // it reads steadily, 20 MB a second, and no faster
	}
}

// What a client announces and does not send costs next to nothing, and is not
// waited for.
func TestAnnouncedBodies(t *testing.T) {
	e := newEndpoint(t, func(o *Options) { o.ReadTimeout = 100 * time.Millisecond })
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
