package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// talker says things when it is sent the first message.
type talker struct {
	session *session.Session
	talk    func(say func(string))
}

func (s *talker) Send(context.Context, session.Message) error {
	go s.talk(func(text string) {
		if envelope, err := rpc.Scan([]byte(text)); err == nil {
			s.session.Deliver(session.Message{Bytes: []byte(text), Envelope: envelope})
		}
	})
	return nil
}

func (*talker) Close() {}

func opening(limits session.Limits, talk func(say func(string))) func(context.Context, *caller.Caller) (*session.Session, error) {
	return func(context.Context, *caller.Caller) (*session.Session, error) {
		server := &talker{talk: talk}
		server.session = session.New(server, limits, &session.Metrics{})
		return server.session, nil
	}
}

// A server that talks instead of answering initialize fills what its session may hold,
// and no more.
func TestServerThatTalksInsteadOfAnswering(t *testing.T) {
	limits := testLimits
	limits.PendingBytes, limits.TotalBytes = 1<<20, 2<<20
	note := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":%q}}`, strings.Repeat("x", 1<<16))
	const times = 256 // 16 MiB
	var held atomic.Int64
	e := newEndpoint(t, func(o *Options) {
		o.Open = opening(limits, func(say func(string)) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for range times {
				say(note)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			held.Store(int64(after.HeapAlloc) - int64(before.HeapAlloc))
			say(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`)
		})
	})
	response := e.post("", fmt.Sprintf(initializeBody, revision20251125))
	body := bodyOf(t, response)
	if response.StatusCode != http.StatusOK || response.Header.Get(headerSession) == "" || !strings.Contains(body, `"protocolVersion"`) {
		t.Errorf("%s: %.200s", response.Status, body)
	}
	if got := held.Load(); got > 8<<20 {
		t.Errorf("%d MiB are held", got>>20)
	}
}

// hasty is a server that answers initialize just when the client goes away.
type hasty struct {
	session *session.Session
	leave   context.CancelFunc
	closed  bool
}

func (s *hasty) Send(context.Context, session.Message) error {
	s.leave()
	text := []byte(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`)
	envelope, err := rpc.Scan(text)
	s.session.Deliver(session.Message{Bytes: text, Envelope: envelope})
	return err
}

func (s *hasty) Close() { s.closed = true }

// A session whose client has gone before it could learn the id is of no use, and ends.
func TestClientGoneBeforeItHasASession(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	server := &hasty{leave: leave}
	e := newEndpoint(t, func(o *Options) {
		o.Open = func(context.Context, *caller.Caller) (*session.Session, error) {
			server.session = session.New(server, testLimits, &session.Metrics{})
			return server.session, nil
		}
	})
	request := httptest.NewRequestWithContext(ctx, "POST", "http://localhost/mcp", strings.NewReader(fmt.Sprintf(initializeBody, revision20251125)))
	request.Header.Set("Content-Type", typeJSON)
	request.Header.Set("Accept", typeJSON+","+typeEvents)
	answer := httptest.NewRecorder()
	edgetest.At(e.handler.Route()).ServeHTTP(answer, request)
	if !server.closed || e.registry.Len() != 0 || answer.Header().Get(headerSession) != "" {
		t.Errorf("the server is closed: %t, %d sessions are open, and the answer names %q", server.closed, e.registry.Len(), answer.Header().Get(headerSession))
	}
}

// A server that is gone before it was asked is no session that has ended: 404 would
// have the client begin again what it has not begun.
func TestServerGoneBeforeInitialize(t *testing.T) {
	e := newEndpoint(t, func(o *Options) {
		o.Open = func(ctx context.Context, _ *caller.Caller) (*session.Session, error) {
			opened, err := opening(testLimits, func(func(string)) {})(ctx, nil)
			opened.End(errors.New("out of memory"))
			return opened, err
		}
	})
	response := e.post("", fmt.Sprintf(initializeBody, revision20251125))
	if body := bodyOf(t, response); response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" || !strings.Contains(body, `"id":0`) {
		t.Errorf("%s: %s", response.Status, body)
	}
}

// lingering is a server that takes its time to close.
type lingering struct {
	session.Server
	closing, let chan struct{}
}

func (s *lingering) Close() {
	close(s.closing)
	<-s.let
	s.Server.Close()
}

// A session has ended when its clients are told so, and not when its server has closed. From then on
// initialize opens a new one, although it names the old one.
func TestInitializeWhileTheSessionEnds(t *testing.T) {
	agree := func(say func(string)) {
		say(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`)
	}
	server := &talker{talk: agree}
	first := &lingering{Server: server, closing: make(chan struct{}), let: make(chan struct{})}
	server.session = session.New(first, testLimits, &session.Metrics{})
	sessions := make(chan *session.Session, 1)
	sessions <- server.session
	e := newEndpoint(t, func(o *Options) {
		o.Open = func(ctx context.Context, from *caller.Caller) (*session.Session, error) {
			select {
			case opened := <-sessions:
				return opened, nil
			default:
				return opening(testLimits, agree)(ctx, from)
			}
		}
	})
	initialize := fmt.Sprintf(initializeBody, revision20251125)
	id := e.post("", initialize).Header.Get(headerSession)
	if got := e.post(id, initialize); got.StatusCode != http.StatusBadRequest {
		t.Errorf("while the session is open: %s", got.Status)
	}
	ended := make(chan struct{})
	go func() {
		server.session.End(errors.New("out of memory"))
		close(ended)
	}()
	<-first.closing
	response := e.post(id, initialize)
	if opened := response.Header.Get(headerSession); response.StatusCode != http.StatusOK || opened == "" || opened == id {
		t.Errorf("while it ends: %s, session %q: %s", response.Status, opened, bodyOf(t, response))
	}
	close(first.let)
	<-ended
}
