package streamable

import (
	"context"
	"errors"
	"io"
	"net/http"
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
				opened.Deliver(context.Background(), session.Message{Bytes: m, Envelope: envelope})
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
