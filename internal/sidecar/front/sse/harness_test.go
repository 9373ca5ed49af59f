package sse

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
	"github.com/slipway-mcp/slipway/test/servers"
)

// Short names for tests.
const (
	typeJSON   = front.TypeJSON
	typeEvents = front.TypeEvents
)

// echoServer is the program that the tests run for each session.
var echoServer string

func TestMain(m *testing.M) {
	os.Exit(servers.Run(m, map[string]*string{"test/servers/echo": &echoServer}))
}

// endpoint is a Transport behind a real HTTP server, with a process for each
// session.
type endpoint struct {
	t         *testing.T
	url       string
	transport *Transport
	registry  *session.Registry
	pool      *child.Pool
	limits    session.Limits
	metrics   session.Metrics
	bodies    edge.BodyLimits
	closed    func(edge.Record)
}

// newEndpoint returns an endpoint that runs the command, or else the echo server.
func newEndpoint(t *testing.T, change func(*endpoint, *Options), command ...string) *endpoint {
	t.Helper()
	if len(command) == 0 {
		command = []string{echoServer}
	}
	direct, err := launcher.NewDirect(launcher.Options{Command: command, Stderr: io.Discard})
	if err != nil {
		t.Fatalf("NewDirect: %v", err)
	}
	e := &endpoint{
		t:        t,
		registry: session.NewRegistry(session.Policy{Max: 16, IdleTimeout: time.Hour, MaxLifetime: time.Hour}),
		pool: child.NewPool(direct, child.Options{
			LineBytes: 64 << 20, Max: 24, Starts: 24,
			StartHold: time.Hour, EOFGrace: time.Hour, TermGrace: time.Hour, SendTimeout: time.Hour, Log: testr.New(t),
		}),
		bodies: edge.BodyLimits{BodyBytes: 1 << 20},
		limits: session.Limits{
			Calls: 64, Streams: 1, PendingBytes: 1 << 20, TotalBytes: 64 << 20,
			CallTimeout: time.Hour, CancelGrace: time.Second, DeliveryTimeout: time.Hour,
		},
	}
	options := Options{
		Sessions: e.registry,
		Open:     e.open, MintToken: rand.Text, PostTo: MessagesPath,
		OpenTimeout: time.Hour, WriteTimeout: time.Hour,
		KeepAlive: time.Hour,
	}
	if change != nil {
		change(e, &options)
	}
	e.transport = New(options)
	server := httptest.NewUnstartedServer(edgetest.Door(e.transport.Routes(), func(o *edge.Options) {
		o.Admit, o.Budget, o.Closed = edgetest.Hosts("localhost"), edgetest.Bodies(e.bodies), e.closed
	}))
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if err := c.(*net.TCPConn).SetWriteBuffer(64 << 10); err != nil { // so that little fits into it
			t.Error(err)
		}
		return ctx
	}
	server.Start()
	e.url = server.URL
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		e.registry.Drain(ended)
		server.Close()
		if err := direct.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

func (e *endpoint) open(ctx context.Context, _ *caller.Caller) (*session.Session, error) {
	server, err := e.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	opened := session.New(server, e.limits, &e.metrics)
	server.Serve(opened.Deliver, opened.End)
	return opened, nil
}

// eventuallyRunning waits until so many sessions and processes are left.
func (e *endpoint) eventuallyRunning(n int) {
	e.t.Helper()
	g := gomega.NewWithT(e.t)
	g.Eventually(e.registry.Len).WithTimeout(hang.Guard).Should(gomega.Equal(n), "sessions")
	g.Eventually(e.pool.Metrics().Running.Load).WithTimeout(hang.Guard).Should(gomega.Equal(int64(n)), "processes")
	g.Eventually(func() int {
		e.transport.mu.Lock()
		defer e.transport.mu.Unlock()
		return len(e.transport.connections)
	}).WithTimeout(hang.Guard).Should(gomega.Equal(n), "connections")
}

// answer is an HTTP response that was read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request. It may be called from any goroutine.
func (e *endpoint) do(method, path, body string, headers map[string]string) (answer, error) {
	request, err := http.NewRequestWithContext(e.t.Context(), method, e.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	request.Host = headers["Host"]
	if headers["Transfer-Encoding"] == "chunked" {
		request.ContentLength = -1
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, errors.Join(err, response.Body.Close())
}

// client is a client without manners: it sees every line.
type client struct {
	e      *endpoint
	header http.Header
	lines  *bufio.Reader
	postTo string
	leave  context.CancelFunc
}

// connect opens a connection and reads where to post.
func (e *endpoint) connect() *client {
	e.t.Helper()
	ctx, leave := context.WithCancel(e.t.Context())
	e.t.Cleanup(leave)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+StreamPath, nil)
	if err != nil {
		e.t.Fatalf("make request: %v", err)
	}
	request.Header.Set("Accept", typeEvents)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		e.t.Fatalf("connect: %v", err)
	}
	e.t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		e.t.Fatalf("connect: %s", response.Status)
	}
	c := &client{e: e, header: response.Header, lines: bufio.NewReader(response.Body), leave: leave}
	first, err := c.next()
	if err != nil || first.name != "endpoint" {
		e.t.Fatalf("E-02 first event: %+v, %v", first, err)
	}
	c.postTo = first.data
	return c
}

// event is an event as a client sees it.
type event struct{ name, id, data string }

// next reads one event, without comments.
func (c *client) next() (event, error) {
	var current event
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			return event{}, err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "event":
			current.name = value
		case "id":
			current.id = value
		case "data":
			current.data = value
		case "":
			if current != (event{}) && value == "" {
				return current, nil
			}
		}
	}
}

// hear returns the next message, which there must be.
func (c *client) hear() string {
	c.e.t.Helper()
	got, err := c.next()
	if err != nil || got.name != "message" || got.id != "" {
		c.e.t.Fatalf("E-03 got %+v, %v; want a message", got, err)
	}
	return got.data
}

func (c *client) post(body string) answer {
	c.e.t.Helper()
	got, err := c.e.do(http.MethodPost, c.postTo, body, map[string]string{"Content-Type": typeJSON})
	if err != nil {
		c.e.t.Fatalf("post: %v", err)
	}
	return got
}

// say posts a message, which must be taken.
func (c *client) say(body string) {
	c.e.t.Helper()
	if got := c.post(body); got.status != http.StatusAccepted || got.body != "" {
		c.e.t.Fatalf("E-04 post %s: %d: %s", body, got.status, got.body)
	}
}

const initializeBody = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

func (c *client) call(id int, tool, arguments string) {
	c.e.t.Helper()
	c.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{%s}}}`, id, tool, arguments))
}

func wantIn(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("got %.300s, want %s in it", text, part)
		}
	}
}
