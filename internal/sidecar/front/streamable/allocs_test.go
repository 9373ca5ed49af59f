package streamable

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// promptServer answers every request at once.
type promptServer struct{ opened *session.Session }

var promptAnswer = []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hello"}]}}`)

func (s *promptServer) Send(context.Context, session.Message) error {
	envelope, err := rpc.Scan(promptAnswer)
	if err != nil {
		return err
	}
	s.opened.Deliver(session.Message{Bytes: promptAnswer, Envelope: envelope})
	return nil
}

func (*promptServer) Close() {}

// sink is a response that goes nowhere and costs nothing.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}

func (s *sink) SetReadDeadline(time.Time) error { return nil }

// maxCallAllocations is what one call may allocate on top of what net/http does.
const maxCallAllocations = 5

func TestCallAllocatesLittle(t *testing.T) {
	server := &promptServer{}
	server.opened = session.New(server, testLimits, &session.Metrics{})
	server.opened.Revision = revision20251125
	server.opened.Owner = caller.NewOwner(&caller.Caller{})
	registry := session.NewRegistry(session.Policy{Max: 1, IdleTimeout: time.Hour, MaxLifetime: time.Hour})
	slot, err := registry.Reserve(t.Context(), &caller.Caller{})
	if err != nil {
		t.Fatal(err)
	}
	slot.Fill(t.Context(), "s", server.opened)
	handler := New(Options{
		Sessions: registry, OpenTimeout: time.Minute,
		WriteTimeout: time.Minute, KeepAlive: time.Minute, Retry: time.Minute,
	})
	door := edgetest.At(handler.Route(), func(o *edge.Options) { o.Metrics = edge.NewMetrics(prometheus.NewRegistry()) })
	body := bytes.NewReader([]byte(echo))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", io.NopCloser(body))
	if err != nil {
		t.Fatal(err)
	}
	request.ContentLength, request.RemoteAddr = int64(len(echo)), "192.0.2.1:5"
	request.Header.Set("Content-Type", typeJSON)
	request.Header.Set("Accept", typeJSON+", "+typeEvents)
	request.Header.Set(headerSession, "s")
	response := &sink{header: http.Header{}}
	allocations := testing.AllocsPerRun(200, func() {
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		door.ServeHTTP(response, request)
	})
	t.Logf("a call allocates %v times", allocations)
	if allocations > maxCallAllocations {
		t.Errorf("a call allocates %v times, want at most %d", allocations, maxCallAllocations)
	}
}
