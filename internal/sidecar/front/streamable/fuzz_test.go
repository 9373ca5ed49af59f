package streamable

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// lineServer notes the lines it is sent and answers nothing.
type lineServer struct{ lines [][]byte }

func (s *lineServer) Send(_ context.Context, sent session.Message) error {
	message := sent.Bytes
	s.lines = append(s.lines, bytes.Clone(message))
	return nil
}

func (*lineServer) Close() {}

// FuzzBody posts arbitrary bodies. Whatever they are, the handler answers with a
// status that it means to give, and what reaches the server is one line of JSON (S-04).
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`,
		`[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"b"}]`,
		"{\n\"jsonrpc\":\"2.0\",\r\n\"method\":\"m\"\n}",
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		`{"jsonrpc":"2.0","id":null}`, `[[]]`, "\x00", `{"jsonrpc":"2.0","method":"m","params":{"a":"` + strings.Repeat("x", 2000) + `"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		server := &lineServer{}
		registry := session.NewRegistry(session.Policy{Max: 1, IdleTimeout: time.Hour, MaxLifetime: time.Hour})
		slot, err := registry.Reserve(t.Context(), &caller.Caller{})
		if err != nil {
			t.Fatal(err)
		}
		opened := session.New(server, testLimits, &session.Metrics{})
		opened.Revision = revision20250326
		opened.Owner = caller.NewOwner(&caller.Caller{})
		slot.Fill(t.Context(), "s", opened)
		handler := New(Options{
			Sessions: registry, OpenTimeout: time.Second,
			WriteTimeout: time.Second, KeepAlive: time.Second, Retry: time.Second,
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", bytes.NewReader(body))
		request.Header.Set("Content-Type", typeJSON)
		request.Header.Set(headerSession, "s")
		recorder := httptest.NewRecorder()
		edgetest.At(handler.Route(), bodies(1<<10, time.Second)).ServeHTTP(recorder, request)
		switch recorder.Code {
		case http.StatusOK, http.StatusAccepted, http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		default:
			t.Errorf("%q: status %d", body, recorder.Code)
		}
		for _, line := range server.lines {
			if !json.Valid(line) || bytes.ContainsAny(line, "\r\n") {
				t.Errorf("%q: the server was sent %q", body, line)
			}
		}
	})
}
