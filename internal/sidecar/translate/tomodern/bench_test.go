package tomodern

import (
	"context"
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// prompt is a process that answers every request at once.
type prompt struct{ receive func(session.Message) }

func (p *prompt) Send(_ context.Context, sent session.Message) error {
	text := sent.Bytes
	e, err := rpc.Scan(text)
	if err != nil || e.Kind != rpc.Request {
		return err
	}
	rest := `"result":{"content":[{"type":"text","text":"hello"}]}`
	if string(e.Method) == "initialize" {
		rest = everything
	}
	answer := []byte(`{"jsonrpc":"2.0","id":` + string(e.ID.Of(text)) + `,` + rest + `}`)
	if e, err = rpc.ScanLenient(answer); err != nil {
		return err
	}
	p.receive(session.Message{Bytes: answer, Envelope: e})
	return nil
}

func (p *prompt) Serve(receive func(session.Message), _ func(error)) { p.receive = receive }
func (p *prompt) Close()                                             {}

// counter is a recipient that counts answers.
type counter struct{ answers *int }

func (c *counter) ID() []byte                 { return []byte("7") }
func (c *counter) Token() []byte              { return []byte("7") }
func (c *counter) Notify([]byte)              {}
func (c *counter) Answer([]byte, int, string) { *c.answers++ }

// promptCall makes one call after the other.
func promptCall(t testing.TB, capabilities string) func() {
	t.Helper()
	server := New(Options{Limits: testLimits(), Serves: serves, Acquire: func(context.Context, *caller.Caller) (mux.Server, error) { return &prompt{}, nil }})
	answers := 0
	t.Cleanup(server.Close)
	text := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x","arguments":{"text":"hello"},"_meta":{"progressToken":7,` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":` + capabilities + `}}}`)
	envelope, err := rpc.Scan(text)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	return func() {
		before := answers
		if err := server.Call(ctx, session.Message{Bytes: text, Envelope: envelope}, &counter{answers: &answers}); err != nil {
			t.Fatal(err)
		}
		if answers != before+1 {
			t.Fatal("no answer")
		}
	}
}

// maxCallAllocations is what one call may allocate. Some of it is the process's that
// answers here.
const maxCallAllocations = 30

func TestCallAllocatesLittle(t *testing.T) {
	call := promptCall(t, "{}")
	call() // and start the process
	if got := testing.AllocsPerRun(200, call); got > maxCallAllocations {
		t.Errorf("a call allocates %v times, want at most %d", got, maxCallAllocations)
	}
}

func BenchmarkCall(b *testing.B) {
	for name, capabilities := range map[string]string{"shared": `{}`, "asking": `{"elicitation":{}}`} {
		b.Run(name, func(b *testing.B) {
			call := promptCall(b, capabilities)
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}
