package sidecar

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
	"github.com/slipway-mcp/slipway/internal/sidecar/wire"
)

// heap is what is in use, in MiB, when nothing that can be freed is counted.
func heap() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc >> 20)
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
	const mib = 1 << 20
	t.Run("notifications", func(t *testing.T) {
		adapter, url := startAdapter(t, nil)
		c := mustOpen(t, url)
		before := heap()
		postUnread(t, c, call("slow", "burst", fmt.Sprintf(`"n":%d,"size":%d`, 3000, 64<<10))) // 188 MiB
		gomega.NewWithT(t).Eventually(adapter.metrics.DroppedNotifications.Value).WithTimeout(longWait).ShouldNot(gomega.BeZero())
		c.wantAnswer(t, "count", `"text":"1"`) // after all of them
		grown := heap() - before
		t.Logf("%d MiB are held, %d notifications were dropped", grown, adapter.metrics.DroppedNotifications.Value())
		if most := pendingBytes/mib + 12; grown > most {
			t.Errorf("%d MiB are held, want at most %d", grown, most)
		}
	})
	t.Run("answers", func(t *testing.T) {
		const answer, calls = 8 * mib, 32 // 256 MiB
		adapter, url := startAdapter(t, func(c *Config) { c.LineBytes = answer + mib })
		c, other := mustOpen(t, url), mustOpen(t, url)
		before := heap()
		for i := range calls {
			postUnread(t, c, call(i, "big", fmt.Sprintf(`"n":%d`, answer)))
		}
		gomega.NewWithT(t).Eventually(adapter.metrics.Stalls.Value).WithTimeout(longWait).ShouldNot(gomega.BeZero())
		grown := heap() - before
		t.Logf("%d MiB are held", grown)
		// What may wait, one message past it, and a buffer to read it into.
		if most := (2*(answer+mib)+pendingBytes)/mib + 5*answer/mib; grown > most {
			t.Errorf("%d MiB are held, want at most %d", grown, most)
		}
		other.wantAnswer(t, "count", `"text":"1"`) // others notice nothing
	})
}

// R48: a server does not read. Clients' messages wait in memory up to a limit, and
// all of them are answered in the end.
func TestR48ServerThatDoesNotRead(t *testing.T) {
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const body, calls = 1 << 20, 16 // few enough to be read within the time to send, on a busy machine
	_, url := startAdapterOn(t, listener, func(c *Config) { c.BodyBytes, c.Era = body+64<<10, stateless.Legacy }, "sh", "-c",
		`read line; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"deaf","version":"1"}}}'; exec sleep 1000`)
	c := mustOpen(t, url)
	before := heap()
	text := call(1, "echo", `"text":"`+strings.Repeat("t", body)+`"`)
	var busy atomic.Int64
	answered := make(chan error, calls)
	for i := range calls {
		go func() {
			response, err := c.post(t.Context(), strings.Replace(text, `"id":1`, fmt.Sprintf(`"id":%d`, i), 1))
			if err != nil {
				answered <- err
				return
			}
			said, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if strings.Contains(string(said), session.ErrServerBusy.Error()) {
				busy.Add(1)
			}
			if response.StatusCode != http.StatusServiceUnavailable && response.StatusCode != http.StatusNotFound {
				err = fmt.Errorf("%s: %.200s", response.Status, said)
			}
			answered <- err
		}()
	}
	// Two have room; all others are told at once, while those still wait.
	gomega.NewWithT(t).Eventually(busy.Load).WithTimeout(sendTimeout - time.Second).Should(gomega.BeNumerically(">=", calls-2))
	held := heap()
	for range calls {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	grown := held - min(before, heap()) // what an earlier test left may have gone meanwhile
	t.Logf("%d MiB were held, those of the client included", grown)
	if most := calls * body >> 20 * 3 / 4; grown > most { // without a limit it is twice all of it
		t.Errorf("%d MiB were held, want at most %d", grown, most)
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

func (s *agreeableServer) Send(context.Context, []byte) error {
	go s.say(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"a","version":"1"}}}`)
	return nil
}

func (s *agreeableServer) Close() {}

func (s *agreeableServer) say(text string) {
	envelope, err := wire.Scan([]byte(text))
	if err != nil {
		panic(err)
	}
	s.opened.Deliver(session.Message{Bytes: []byte(text), Envelope: envelope})
}

// R34: no time-out of the HTTP server ends a stream, however long it lasts: one that
// is silent for an hour and then has something to say.
func TestR34LongStreamsAreNotCut(t *testing.T) {
	if server := newServer(nil); server.WriteTimeout != 0 || server.ReadTimeout != 0 {
		t.Errorf("the server ends answers after %s and requests after %s", server.WriteTimeout, server.ReadTimeout)
	}
	synctest.Test(t, func(t *testing.T) {
		config := Defaults()
		config.Log = logr.Discard()
		var server *agreeableServer
		a := &Adapter{
			config:   config,
			sessions: session.NewRegistry(session.Policy{Max: 1, IdleTimeout: config.IdleTimeout, MaxLifetime: config.MaxLifetime}),
			draining: make(chan struct{}),
			answers:  newAnswerCounts(prometheus.NewRegistry()),
		}
		a.config.IDs = newIDs(t)
		a.backend.open = func(context.Context) (*session.Session, error) {
			server = &agreeableServer{}
			server.opened = session.New(server, a.sessionLimits(), &a.metrics)
			return server.opened, nil
		}
		listener := &pipeListener{make(chan net.Conn), make(chan struct{})}
		httpServer := newServer(a.answering(a.clientHandler()))
		go func() { _ = httpServer.Serve(listener) }()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go a.sessions.Run(ctx)
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
