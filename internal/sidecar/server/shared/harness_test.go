package shared

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
	"github.com/slipway-mcp/slipway/test/servers"
)

// echoServer is the program that tests with real processes run.
var echoServer string

func TestMain(m *testing.M) {
	os.Exit(servers.Run(m, map[string]*string{"test/servers/echo": &echoServer}))
}

func testOptions() Options {
	return Options{
		Session: session.Limits{
			Calls: 256, Streams: 4, ReplayBytes: 0, PendingBytes: 16 << 20, TotalBytes: 64 << 20,
			CallTimeout: time.Hour, CancelGrace: time.Second, DeliveryTimeout: hang.Guard,
		},
		SessionMetrics: &session.Metrics{},
		Calls:          1 << 16, Subscriptions: 8, InputBytes: 1 << 20, BacklogBytes: 16 << 20,
		StartTimeout: hang.Guard, SendTimeout: hang.Guard, StuckTimeout: hang.Guard / 3,
	}
}

// fake is a server in this process. What it is sent is handled in order.
type fake struct {
	t       *testing.T
	handle  func(*fake, session.Message) // called for everything but the handshake
	result  string                       // the result of initialize
	receive func(session.Message)
	ended   func(error)

	mu     sync.Mutex
	sent   []string
	deaf   chan struct{} // while it is there and open nothing is read
	closed bool

	speaking sync.Mutex
}

const (
	plainResult = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"serverInfo":{"name":"fake","version":"1"}}`
	deafError   = "the fake is deaf"
)

func (f *fake) Serve(receive func(session.Message), ended func(error)) {
	f.receive, f.ended = receive, ended
}

func (f *fake) Send(ctx context.Context, sent session.Message) error {
	message := sent.Bytes
	f.mu.Lock()
	deaf := f.deaf
	f.mu.Unlock()
	if deaf != nil {
		select {
		case <-deaf:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", deafError, os.ErrDeadlineExceeded)
		}
	}
	envelope, err := rpc.Scan(message)
	if err != nil {
		f.t.Errorf("S-04: the server was sent %q: %v", message, err)
		return nil
	}
	f.mu.Lock()
	f.sent = append(f.sent, string(message))
	f.mu.Unlock()
	if string(envelope.Method) == "initialize" {
		go f.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, envelope.ID.Of(message), f.result)
		return nil
	}
	if f.handle != nil {
		f.handle(f, session.Message{Bytes: message, Envelope: envelope})
	}
	return nil
}

func (f *fake) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// say has the server say something. Its buffer is used again, like a real reader's.
func (f *fake) say(format string, values ...any) {
	f.speaking.Lock()
	defer f.speaking.Unlock()
	buffer := fmt.Appendf(nil, format, values...)
	envelope, err := rpc.Scan(buffer)
	if err != nil {
		f.t.Errorf("the fake says %s: %v", buffer, err)
		return
	}
	f.receive(session.Message{Bytes: buffer, Envelope: envelope})
	for i := range buffer {
		buffer[i] = '#'
	}
}

func (f *fake) die(reason error) {
	f.speaking.Lock()
	defer f.speaking.Unlock()
	f.ended(reason)
}

// heard is what the server was sent after the handshake.
func (f *fake) heard() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var after []string
	for _, message := range f.sent {
		if !strings.Contains(message, `"initialize"`) && !strings.Contains(message, `"notifications/initialized"`) {
			after = append(after, message)
		}
	}
	return after
}

// awaitHeard waits until the server was sent so many messages.
func (f *fake) awaitHeard(count int) []string {
	f.t.Helper()
	var got []string
	await(f.t, fmt.Sprintf("%d messages at the server", count), func() bool {
		got = f.heard()
		return len(got) >= count
	})
	return got
}

// await waits for what another goroutine does without telling.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(hang.Guard)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("waited too long for %s", what)
		case <-tick.C:
		}
	}
}

// newFake is a Process over fakes; the channel has each of them as it is started.
func newFake(t *testing.T, options Options, handle func(*fake, session.Message)) (*Process, <-chan *fake) {
	t.Helper()
	fakes := make(chan *fake, 16)
	options.Acquire = func(context.Context) (mux.Server, error) {
		f := &fake{t: t, handle: handle, result: plainResult}
		fakes <- f
		return f, nil
	}
	p := New(options)
	t.Cleanup(p.Close)
	return p, fakes
}

// client is a client of one session.
type client struct {
	*session.Session
	t *testing.T
}

const initializeRequest = `{"jsonrpc":"2.0","id":%s,"method":"initialize","params":{"protocolVersion":"%s","capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}`

// connect opens and initializes a session.
func connect(t *testing.T, p *Process) *client {
	t.Helper()
	c := &client{opened(t, p), t}
	if got := c.ask(fmt.Sprintf(initializeRequest, "0", "2025-11-25")); !strings.Contains(got, `"protocolVersion":"`) {
		t.Fatalf("initialize: %s", got)
	}
	c.tell(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

func opened(t *testing.T, p *Process) *session.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	s, err := p.Open(ctx)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func message(t *testing.T, text string) session.Message {
	t.Helper()
	envelope, err := rpc.Scan([]byte(text))
	if err != nil {
		t.Fatalf("scan %s: %v", text, err)
	}
	return session.Message{Bytes: []byte(text), Envelope: envelope}
}

func (c *client) call(text string) *session.Stream {
	c.t.Helper()
	stream, err := c.Call(c.t.Context(), message(c.t, text))
	if err != nil {
		c.t.Fatalf("call %.200s: %v", text, err)
	}
	return stream
}

// tool is a request for a tool; all sessions use the same id.
func tool(name, arguments string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `","arguments":{` + arguments + `}}}`
}

func (c *client) tell(text string) {
	c.t.Helper()
	if err := c.Tell(c.t.Context(), message(c.t, text)); err != nil {
		c.t.Fatalf("tell: %v", err)
	}
}

// ask calls and returns what arrives up to the answer.
func (c *client) ask(text string) string {
	c.t.Helper()
	return strings.Join(all(c.t, c.call(text)), "\n")
}

// all is everything on a stream, up to its end.
func all(t *testing.T, stream *session.Stream) (got []string) {
	t.Helper()
	for {
		event, ok := next(t, stream)
		if !ok {
			return got
		}
		got = append(got, event)
	}
}

// next waits for the next event on a stream.
func next(t *testing.T, stream *session.Stream) (string, bool) {
	t.Helper()
	deadline := time.After(hang.Guard)
	for {
		event, ok, end := stream.Take()
		switch {
		case ok && event.Message == nil: // the end of a call that was cancelled
			continue
		case ok:
			return string(event.Message), true
		case end:
			return "", false
		}
		select {
		case <-stream.Ready():
		case <-deadline:
			t.Error("nothing arrives")
			return "", false
		}
	}
}

func (c *client) listen() *session.Stream {
	c.t.Helper()
	stream, err := c.Open()
	if err != nil {
		c.t.Fatalf("open stream: %v", err)
	}
	return stream
}

func expect(t *testing.T, what, got string, want ...string) {
	t.Helper()
	for _, part := range want {
		if !strings.Contains(got, part) {
			t.Errorf("%s: got %.500s, want %s in it", what, got, part)
		}
	}
}

// expectNothing checks that a stream has nothing on it after what was sent last
// has been answered.
func expectNothing(t *testing.T, what string, stream *session.Stream) {
	t.Helper()
	if event, ok, _ := stream.Take(); ok {
		t.Errorf("%s: got %.500s, want nothing", what, event.Message)
	}
}
