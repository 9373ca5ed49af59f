package sidecar

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/backend"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/streamable"
	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/settings"
	"github.com/slipway-mcp/slipway/test/hang"
)

const mib = 1 << 20

// heap is what is in use, in bytes, when nothing that can be freed is counted. It is that of
// the whole process, so no test may run beside one that looks at it.
func heap() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// postUnread sends a call and never reads what it is answered. Its window is small,
// so that the kernel does not take the answer in our place.
func postUnread(t *testing.T, c *client, body string) {
	t.Helper()
	address, path, _ := strings.Cut(strings.TrimPrefix(c.url, "http://"), "/")
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if err := connection.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(connection, "POST /%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s",
		path, c.session, len(body), body)
	if err != nil {
		t.Fatal(err)
	}
}

// R48: a client calls and does not read. What waits for it is bounded: notifications
// are given up, and for the sake of answers the server is no longer read.
func TestR48ClientThatDoesNotRead(t *testing.T) {
	t.Run("notifications", func(t *testing.T) {
		adapter, url := startAdapter(t, nil)
		c := mustOpen(t, url)
		before := heap()
		postUnread(t, c, call("slow", "burst", fmt.Sprintf(`"n":%d,"size":%d`, 1000, 64<<10))) // 62 MiB
		gomega.NewWithT(t).Eventually(adapter.env.SessionMetrics.DroppedNotifications.Value).WithTimeout(hang.Guard).ShouldNot(gomega.BeZero())
		c.wantAnswer(t, "count", `"text":"1"`) // after all of them
		grown := heap() - before
		t.Logf("%d KiB are held, %d notifications were dropped", grown>>10, adapter.env.SessionMetrics.DroppedNotifications.Value())
		if most := session.PendingBytes + 12*mib; grown > most {
			t.Errorf("%d KiB are held, want at most %d", grown>>10, most>>10)
		}
	})
	for name, arguments := range map[string]string{"answers": "", "answers in event streams": `,"text":"first"`} {
		t.Run(name, func(t *testing.T) {
			const answer, calls = 4 * mib, 24 // 96 MiB: more than the kernel takes, too
			adapter, url := startAdapter(t, func(c *config.Config) { c.LineBytes = answer + mib })
			c, other := mustOpen(t, url), mustOpen(t, url)
			before := heap()
			for i := range calls {
				postUnread(t, c, call(i, "big", fmt.Sprintf(`"n":%d%s`, answer, arguments)))
			}
			gomega.NewWithT(t).Eventually(adapter.env.SessionMetrics.Stalls.Value).WithTimeout(hang.Guard).ShouldNot(gomega.BeZero())
			grown := heap() - before
			t.Logf("%d KiB are held", grown>>10)
			// What may wait, one message past it, and a buffer to read it into.
			if most := 2*(answer+mib) + session.PendingBytes + 5*answer; grown > most {
				t.Errorf("%d KiB are held, want at most %d", grown>>10, most>>10)
			}
			other.wantAnswer(t, "count", `"text":"1"`) // others notice nothing
		})
	}
}

// R48: a server does not read. Clients' messages wait in memory up to a limit, and
// all of them are answered in the end.
func TestR48ServerThatDoesNotRead(t *testing.T) {
	callDeafServer(t, func(c *client) {
		if err := c.delete(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The same when the client does not end its session: the server has had its time.
func TestLongR48ServerThatDoesNotRead(t *testing.T) {
	callDeafServer(t, func(*client) {})
}

// callDeafServer makes calls of a server that does not read, has the client end those that
// wait, and looks at what was held and what was answered.
func callDeafServer(t *testing.T, end func(c *client)) {
	t.Helper()
	const body, calls, room = mib / 2, 12, 2
	_, url := startAdapterOn(t, newListener(t), func(c *config.Config) { c.BodyBytes, c.Era = body+body/8, sessionless.Legacy }, "sh", "-c",
		`read line; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"deaf","version":"1"}}}'; exec sleep 1000`)
	c := mustOpen(t, url)
	before := heap()
	text := call(1, "echo", `"text":"`+strings.Repeat("t", body)+`"`)
	answered := make(chan string, calls)
	for i := range calls {
		go func() {
			response, err := c.post(t.Context(), strings.Replace(text, `"id":1`, fmt.Sprintf(`"id":%d`, i), 1))
			if err != nil {
				answered <- err.Error()
				return
			}
			said, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			answered <- fmt.Sprintf("%s: %.200s", response.Status, said)
		}()
	}
	// Two have room and wait; all others are told before them.
	for range calls - room {
		if said := <-answered; !strings.HasPrefix(said, "503 ") || !strings.Contains(said, session.ErrServerBusy.Error()) {
			t.Errorf("a call for which there is no room: %s", said)
		}
	}
	held := heap()
	end(c)
	for range room {
		if said := <-answered; !strings.HasPrefix(said, "503 ") && !strings.HasPrefix(said, "404 ") || strings.Contains(said, session.ErrServerBusy.Error()) {
			t.Errorf("a call that has waited: %s", said)
		}
	}
	grown := held - min(before, heap()) // what an earlier test left may have gone meanwhile
	t.Logf("%d KiB were held, those of the client included", grown>>10)
	if most := calls * body * 3 / 4; grown > most { // without a limit it is twice all of it
		t.Errorf("%d KiB were held, want at most %d", grown>>10, most>>10)
	}
}

// pipeListener gives the server connections that exist in memory only, so that their
// time can be had.
type pipeListener struct {
	connections chan net.Conn
	closed      chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case connection := <-l.connections:
		return connection, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.closed)
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	l.connections <- there
	return here, nil
}

// agreeableServer answers initialize and nothing else.
type agreeableServer struct{ opened *session.Session }

func (s *agreeableServer) Send(context.Context, session.Message) error {
	go s.say(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"a","version":"1"}}}`)
	return nil
}

func (s *agreeableServer) Close() {}

func (s *agreeableServer) say(text string) {
	envelope, err := rpc.Scan([]byte(text))
	if err != nil {
		panic(err)
	}
	s.opened.Deliver(session.Message{Bytes: []byte(text), Envelope: envelope})
}

// agreeableBackend is a backend with sessions and nothing else.
type agreeableBackend struct {
	backend.Backend
	open func() *session.Session
}

func (b agreeableBackend) Open(context.Context, *caller.Caller) (*session.Session, error) {
	return b.open(), nil
}

func (b agreeableBackend) Routes(path string, handler *streamable.Handler) map[string]edge.Route {
	return map[string]edge.Route{path: handler.Route()}
}

// R34: no time-out of the HTTP server ends a stream, however long it lasts: one that
// is silent for an hour and then has something to say.
func TestR34LongStreamsAreNotCut(t *testing.T) {
	if server := listener.NewServer(nil, 1, logr.Discard()); server.WriteTimeout != 0 || server.ReadTimeout != 0 {
		t.Errorf("the server ends answers after %s and requests after %s", server.WriteTimeout, server.ReadTimeout)
	}
	synctest.Test(t, func(t *testing.T) {
		cfg := config.Defaults()
		cfg.Log = logr.Discard()
		var server *agreeableServer
		env := &backend.Env{Config: cfg, Sessions: session.NewRegistry(session.Policy{Max: 1, IdleTimeout: cfg.IdleTimeout, MaxLifetime: cfg.MaxLifetime})}
		env.Keys, env.Settings, env.Access = newKeys(t), settings.New(settings.Options{}), access.New(access.Options{})
		a := &Adapter{
			env: env, lifecycle: newLifecycle(), requests: edge.NewMetrics(prometheus.NewRegistry()),
			bodies: edge.NewMemory(edge.BodyLimits{BodyBytes: cfg.BodyBytes}, budget.New(cfg.Budget(), cfg.MaxSessions)),
			backend: agreeableBackend{open: func() *session.Session {
				server = &agreeableServer{}
				server.opened = session.New(server, env.SessionLimits(), &env.SessionMetrics)
				return server.opened
			}},
		}
		httpServer := listener.NewServer(a.door(a.routes()), 1, logr.Discard())
		listener := &pipeListener{make(chan net.Conn), make(chan struct{})}
		go func() { _ = httpServer.Serve(listener) }()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go a.env.Sessions.Run(ctx)
		transport := &http.Transport{DialContext: listener.dial}
		c := &client{url: "http://localhost" + Path, http: &http.Client{Transport: transport}}
		if err := c.initialize(ctx); err != nil {
			t.Fatal(err)
		}
		stream, err := c.do(ctx, http.MethodGet, "")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.AfterFunc(time.Hour, func() { server.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`) })
		lines := bufio.NewReader(stream.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Errorf("cut after %s: %v", time.Since(began), err)
				break
			}
			if strings.Contains(line, "list_changed") {
				break
			}
		}
		if took := time.Since(began); took != time.Hour {
			t.Errorf("it took %s, want an hour", took)
		}
		server.opened.End(errors.New("the test is over"))
		_ = stream.Body.Close()
		transport.CloseIdleConnections()
		_ = httpServer.Close()
	})
}

// Clients that announce large bodies, send a part and pause hold no more than the
// budget, and nothing of what others need: a small request of another session is answered.
// Those that find no room are told when to try again.
func TestHalfSentBodiesAreBounded(t *testing.T) {
	const connections, limit, sent = 60, 64 * mib, 4*mib + 1
	adapter, url := startAdapter(t, func(c *config.Config) { c.MemoryLimit, c.BodyBytes = limit, 16*mib })
	c := mustOpen(t, url)
	before := heap()
	address, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	head := fmt.Appendf(nil, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n",
		c.session, 16*mib)
	body := bytes.Repeat([]byte{' '}, sent)
	answers := make(chan *http.Response, connections)
	for range connections {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		go func() {
			_, _ = connection.Write(head)
			_, _ = connection.Write(body) // as far as it is read
			if response, err := http.ReadResponse(bufio.NewReader(connection), nil); err == nil {
				answers <- response
			}
		}()
	}
	gomega.NewWithT(t).Eventually(adapter.bodies.Refused).WithTimeout(hang.Guard).ShouldNot(gomega.BeZero())
	c.wantAnswer(t, "count", `"text":"1"`)
	const slack = 16 * mib // of the tests' own, too
	if grown := heap() - before; grown > limit/budget.LimitShare+slack {
		t.Errorf("%d KiB are held, want at most %d", grown>>10, (limit/budget.LimitShare+slack)>>10)
	}
	response := <-answers
	_ = response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("got %s, Retry-After %q", response.Status, response.Header.Get("Retry-After"))
	}
}
