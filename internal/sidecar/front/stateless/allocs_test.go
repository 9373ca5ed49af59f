package stateless

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// promptServer answers every request at once.
type promptServer struct{ receive func(session.Message) }

func (s *promptServer) Send(_ context.Context, sent session.Message) error {
	text := sent.Bytes
	e, err := rpc.Scan(text)
	if err != nil {
		return err
	}
	answer := append([]byte(`{"jsonrpc":"2.0","id":`), e.ID.Of(text)...)
	answer = append(answer, `,"result":{"content":[{"type":"text","text":"hello"}]}}`...)
	if e, err = rpc.ScanLenient(answer); err != nil {
		return err
	}
	s.receive(session.Message{Bytes: answer, Envelope: e})
	return nil
}

func (s *promptServer) Serve(receive func(session.Message), _ func(error)) { s.receive = receive }
func (s *promptServer) Close()                                             {}

// sink is an answer that goes nowhere and costs nothing.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header              { return s.header }
func (s *sink) Write(b []byte) (int, error)      { return len(b), nil }
func (s *sink) WriteHeader(int)                  {}
func (s *sink) SetWriteDeadline(time.Time) error { return nil }

func promptCall(t testing.TB) func() {
	t.Helper()
	server := sessionless.New(sessionless.Options{Era: sessionless.Modern, Limits: testLimits(), Acquire: func(context.Context) (mux.Server, error) { return &promptServer{}, nil }})
	e := New(testOptions(server))
	text := []byte(enveloped("1", "prompts/get", `"name":"x",`))
	envelope, err := rpc.Scan(text)
	if err != nil {
		t.Fatal(err)
	}
	message := session.Message{Bytes: text, Envelope: envelope}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = headers(message)
	w := &sink{http.Header{}}
	passed := &edge.Request{Request: request}
	return func() {
		passed.Messages = append(passed.Messages[:0], message)
		e.Serve(w, passed)
	}
}

// maxCallAllocations is what one call may allocate on top of what net/http does: 9, of which
// four are of the server that answers here, and one more with the race detector, which has
// pools drop some of their items.
const maxCallAllocations = 10

func TestCallAllocatesLittle(t *testing.T) {
	call := promptCall(t)
	call() // and start the process
	if got := testing.AllocsPerRun(200, call); got > maxCallAllocations {
		t.Errorf("a call allocates %v times, want at most %d", got, maxCallAllocations)
	}
}

func BenchmarkCall(b *testing.B) {
	call := promptCall(b)
	b.ReportAllocs()
	for b.Loop() {
		call()
	}
}
