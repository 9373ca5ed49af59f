// Package sessionlesstest has a server process that a test plays, and requests of revision
// 2026-07-28 for it.
package sessionlesstest

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// What a process may answer, after the id.
const (
	ModernDiscovery = `"result":{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}`
	NoTools         = `"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}`
)

// Script is a process that a test plays.
type Script struct {
	Answers map[string]string    // that it gives by itself: what follows the id, by method; empty for none
	Sent    chan session.Message // all other requests, and notifications
	Closed  chan struct{}        // when the process has ended
	Receive func(session.Message)

	ended func(error)
	once  sync.Once
}

// New returns a Script with these answers.
func New(answers map[string]string) *Script {
	return &Script{Sent: make(chan session.Message, 1024), Closed: make(chan struct{}), Answers: answers}
}

// NewModern returns a Script of a server that speaks the revision and has no tools.
func NewModern() *Script {
	return New(map[string]string{"server/discover": ModernDiscovery, "tools/list": NoTools})
}

// Send is that of session.Server.
func (s *Script) Send(_ context.Context, sent session.Message) error {
	text := bytes.Clone(sent.Bytes) // the sender keeps its own
	e, err := rpc.Scan(text)
	if err != nil {
		return err // S-04
	}
	if answer, ok := s.Answers[string(e.Method)]; ok {
		if answer != "" {
			go s.Emit(`{"jsonrpc":"2.0","id":` + string(e.ID.Of(text)) + `,` + answer + `}`)
		}
		return nil
	}
	s.Sent <- session.Message{Bytes: text, Envelope: e}
	return nil
}

// Serve is that of mux.Server.
func (s *Script) Serve(receive func(session.Message), ended func(error)) {
	s.Receive, s.ended = receive, ended
}

var errClosed = errors.New("closed")

// Close is that of session.Server.
func (s *Script) Close() { s.End(errClosed) }

// End has the process end, which its reader notices.
func (s *Script) End(reason error) {
	s.once.Do(func() {
		close(s.Closed)
		go s.ended(reason)
	})
}

// Emit has the process write a message.
func (s *Script) Emit(text string) {
	e, err := rpc.ScanLenient([]byte(text))
	if err != nil {
		panic(text + ": " + err.Error())
	}
	s.Receive(session.Message{Bytes: []byte(text), Envelope: e})
}

// Next is what the process was sent.
func (s *Script) Next(t *testing.T) session.Message {
	t.Helper()
	select {
	case message := <-s.Sent:
		return message
	case <-time.After(hang.Guard):
		t.Fatal("the process is sent nothing")
		return session.Message{}
	}
}

// Answer has the process answer a request with what follows the id.
func (s *Script) Answer(request session.Message, rest string) {
	s.Emit(`{"jsonrpc":"2.0","id":` + string(request.Envelope.ID.Of(request.Bytes)) + `,` + rest + `}`)
}

// Process waits for the next process that was started.
func Process(t *testing.T, started <-chan *Script) *Script {
	t.Helper()
	select {
	case p := <-started:
		return p
	case <-time.After(hang.Guard):
		t.Fatal("no process is started")
		return nil
	}
}

// Await waits for a condition.
func Await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(hang.Guard); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// Envelope is the one that every request has in its params.
const Envelope = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// Enveloped is a request with more params than the envelope, each with a comma behind.
func Enveloped(id, method, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + Envelope + `}}`
}

// Scanned is a message that must be valid.
func Scanned(text string) session.Message {
	e, err := rpc.Scan([]byte(text))
	if err != nil {
		panic(text + ": " + err.Error())
	}
	return session.Message{Bytes: []byte(text), Envelope: e}
}

var numbers = regexp.MustCompile(`"id":\d+`)

// Unnumbered is a request of the adapter with N for its number.
func Unnumbered(request session.Message) string {
	return numbers.ReplaceAllString(string(request.Bytes), `"id":N`)
}
