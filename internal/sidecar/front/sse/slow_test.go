package sse

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

const (
	bigSize = 4 << 20 // more than the sockets hold
	big     = `"n":4194304`
)

// A client that does not read stalls no other, and one that reads gets a large message.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	slow, quick := e.connect(), e.connect()
	slow.call(1, "big", big)
	if _, err := slow.lines.Peek(1); err != nil { // the adapter is writing to it
		t.Fatal(err)
	}
	for id := range 20 {
		quick.call(id, "echo", `"text":"quick"`)
		wantIn(t, quick.hear(), "quick")
	}
	quick.call(1, "big", big)
	if got := quick.hear(); len(got) < bigSize {
		t.Errorf("got %d bytes", len(got))
	}
	if got := e.registry.Len(); got != 2 {
		t.Errorf("%d sessions are left, want that of the slow client, too", got)
	}
}

// A client that does not read is given up in time.
func TestReaderThatStops(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, func(_ *endpoint, o *Options) { o.WriteTimeout = time.Second })
	e.connect().call(1, "big", big)
	e.eventuallyRunning(0)
}

// steady is a client that reads so many bytes in a second.
type steady struct {
	header    http.Header
	rate, got int
	deadline  time.Time
}

func (s *steady) Header() http.Header { return s.header }
func (s *steady) WriteHeader(int)     {}
func (s *steady) Flush()              {}

func (s *steady) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(len(b)) * time.Second / time.Duration(s.rate))
	if time.Now().After(s.deadline) {
		return 0, os.ErrDeadlineExceeded
	}
	s.got += len(b)
	return len(b), nil
}

func (s *steady) SetWriteDeadline(at time.Time) error {
	s.deadline = at
	return nil
}

type mute struct{}

func (mute) Send(context.Context, session.Message) error { return nil }
func (mute) Close()                                      {}

// A client that keeps reading gets all of a large message, however long it takes.
func TestSteadyReader(t *testing.T) {
	const size = 4 << 20
	for name, test := range map[string]struct {
		rate int
		all  bool
	}{
		"steady":   {size / 10, true},
		"too slow": {32 << 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opened := session.New(mute{}, session.Limits{Calls: 1, Streams: 1, PendingBytes: 64 << 20, TotalBytes: 64 << 20, DeliveryTimeout: time.Hour}, &session.Metrics{})
				transport := New(Options{
					Sessions: session.NewRegistry(session.Policy{Max: 1, IdleTimeout: time.Hour, MaxLifetime: time.Hour}),
					Open:     func(context.Context, *caller.Caller) (*session.Session, error) { return opened, nil }, MintToken: func() string { return "t" },
					PostTo: MessagesPath, OpenTimeout: time.Hour, WriteTimeout: time.Second, KeepAlive: time.Hour,
				})
				text := []byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"x":"` + strings.Repeat("x", size) + `"}}`)
				envelope, err := rpc.Scan(text)
				if err != nil {
					t.Fatal(err)
				}
				client := &steady{header: http.Header{}, rate: test.rate}
				served := make(chan struct{})
				go func() {
					defer close(served)
					edgetest.Door(transport.Routes()).ServeHTTP(client, httptest.NewRequestWithContext(t.Context(), http.MethodGet, StreamPath, nil))
				}()
				synctest.Wait() // it is told where to post
				opened.Deliver(session.Message{Bytes: text, Envelope: envelope})
				time.Sleep(time.Minute)
				opened.End(errors.New("over"))
				<-served
				if all := client.got >= size; all != test.all {
					t.Errorf("got %d bytes of %d", client.got, size)
				}
			})
		})
	}
}

// However much the server says, the adapter's own answers get through.
func TestOwnAnswerAmongMany(t *testing.T) {
	opened := session.New(mute{}, session.Limits{Calls: 1, Streams: 1, PendingBytes: 64 << 20, TotalBytes: 64 << 20, DeliveryTimeout: time.Hour}, &session.Metrics{})
	defer opened.End(errors.New("over"))
	general, err := opened.Open()
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"x":"` + strings.Repeat("x", 64<<10) + `"}}`)
	envelope, err := rpc.Scan(text)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		opened.Deliver(session.Message{Bytes: text, Envelope: envelope})
	}
	c := &connection{session: opened, stream: general, answers: make(chan []byte, 1)}
	c.answers <- []byte(`"ours"`)
	client := httptest.NewRecorder()
	events := front.StartEvents(client, http.StatusOK, time.Hour, general)
	if more := c.Gather(events); !more || !events.Full() || events.Flush() != nil {
		t.Error("it is not full of what the server says")
	}
	if got := client.Body.String(); !strings.Contains(got, "data: \"ours\"\n\n") {
		t.Errorf("the answer of the adapter is not among %d bytes", len(got))
	}
}

// A client whose connection has ended gets no answer of the adapter, and the adapter does not
// wait.
func TestOwnAnswerAfterTheEnd(t *testing.T) {
	opened := session.New(mute{}, session.Limits{Calls: 1, Streams: 1}, &session.Metrics{})
	c := &connection{session: opened, answers: make(chan []byte)}
	opened.End(errGone)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.answer(ctx, []byte(`"ours"`)); !errors.Is(err, session.ErrEnded) {
		t.Errorf("got %v", err)
	}
}
