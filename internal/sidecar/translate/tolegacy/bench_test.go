package tolegacy

import (
	"context"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// prompt is a modern server that answers every request at once, and costs little.
type prompt struct {
	answer []byte
	ready  chan struct{}
}

func (p *prompt) Call(context.Context, session.Message) (Exchange, error) { return &prompted{p}, nil }

type prompted struct{ prompt *prompt }

func (p *prompted) Take() (message []byte, last, ok bool) {
	return append([]byte(nil), p.prompt.answer...), true, true
}
func (p *prompted) Ready() <-chan struct{} { return p.prompt.ready }
func (p *prompted) Release()               {}

// promptSession is a session over such a server. It returns what makes a call and waits
// for its answer.
func promptSession(t testing.TB, size int) (call func()) {
	t.Helper()
	modern := &prompt{answer: []byte(`{"jsonrpc":"2.0","id":0,"result":{"resultType":"complete","capabilities":{}}}`)}
	got := make(chan session.Message, 1)
	server := New(Options{Modern: modern, Limits: DefaultLimits(), Metrics: &Metrics{}})
	server.Serve(func(message session.Message) { got <- message }, func(error) {})
	t.Cleanup(server.Close)
	send := func(text []byte) session.Message {
		if err := server.Send(context.Background(), session.Message{Bytes: text}); err != nil {
			t.Fatal(err)
		}
		return <-got
	}
	send([]byte(initialize(r11, `{"roots":{},"sampling":{},"elicitation":{}}`)))
	modern.answer = []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", size) + `"}],"resultType":"complete","_meta":{"` + rpc.MetaServerInfo + `":{"name":"s","version":"1"}}}}`)
	request := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + strings.Repeat("x", size) + `"},"_meta":{"progressToken":1}}}`)
	return func() {
		if answer := send(request); !answer.Envelope.Result.Present() {
			t.Fatalf("answered %s", answer.Bytes)
		}
	}
}

// maxCallAllocations is what one call may allocate. Three are the server's that answers
// here.
const maxCallAllocations = 18

func TestCallAllocatesLittle(t *testing.T) {
	if got := testing.AllocsPerRun(200, promptSession(t, 200)); got > maxCallAllocations {
		t.Errorf("a call allocates %v times, want at most %d", got, maxCallAllocations)
	}
}

func BenchmarkCall(b *testing.B) {
	for name, size := range map[string]int{"200B": 200, "64KiB": 64 << 10, "1MiB": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			call := promptSession(b, size)
			b.SetBytes(2 * int64(size))
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}
