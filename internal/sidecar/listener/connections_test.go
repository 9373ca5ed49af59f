package listener

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
)

// crowded is a server that has room for few connections.
type crowded struct {
	t       *testing.T
	tcp     net.Listener
	address string
	server  *Server
	conns   *connections
	release chan struct{} // ends requests to /slow
	entered chan struct{}
}

// newCrowded returns a server that does not serve yet.
func newCrowded(t *testing.T, limit int) *crowded {
	t.Helper()
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &crowded{t: t, tcp: tcp, address: tcp.Addr().String(), release: make(chan struct{}), entered: make(chan struct{})}
	c.server = NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			c.entered <- struct{}{}
			<-c.release
		}
		_, _ = io.WriteString(w, "answer")
	}), limit, logr.Discard())
	c.conns = c.server.conns
	return c
}

func (c *crowded) serve() {
	go func() { _ = c.server.Serve(c.tcp) }()
	c.t.Cleanup(func() { _ = c.server.Close() })
}

// enforce has the server enforce the deadlines that have passed by a later time.
func (c *crowded) enforce(later time.Duration) {
	c.conns.mu.Lock()
	defer c.conns.mu.Unlock()
	for conn := range c.conns.open {
		conn.enforceDeadline(time.Now().Add(later))
	}
}

// dial opens a connection that the server has taken in, or refused.
func (c *crowded) dial() net.Conn {
	c.t.Helper()
	decided := func() uint64 { return uint64(c.server.Connections()) + c.server.Evicted() + c.server.Refused() }
	before := decided()
	conn, err := (&net.Dialer{}).DialContext(c.t.Context(), "tcp", c.address)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	gomega.NewWithT(c.t).Eventually(decided).WithTimeout(hang.Guard).Should(gomega.BeNumerically(">", before))
	return conn
}

func (c *crowded) send(conn net.Conn, path string) {
	c.t.Helper()
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *crowded) read(conn net.Conn) (status int, body string) {
	c.t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(hang.Guard))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		c.t.Fatalf("no answer: %v", err)
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		c.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// get makes a request and leaves the connection open.
func (c *crowded) get(conn net.Conn) {
	c.t.Helper()
	c.send(conn, "/")
	if status, body := c.read(conn); status != http.StatusOK || body != "answer" {
		c.t.Errorf("got %d %s", status, body)
	}
}

func (c *crowded) wantClosed(conn net.Conn) {
	c.t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(hang.Guard))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) || isTimeout(err) {
		c.t.Errorf("the connection is not closed: %v", err)
	}
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// pretend has the connection that is between two requests be so for longer, if there is one.
func (c *crowded) pretend(longer time.Duration) bool {
	c.conns.mu.Lock()
	defer c.conns.mu.Unlock()
	for conn := range c.conns.open {
		if conn.is(http.StateIdle) {
			conn.idleSince.Add(-int64(longer))
			return true
		}
	}
	return false
}

// Connections that nothing comes on make room for those that something comes on, the oldest
// first; others are not touched.
func TestSilentConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, 3)
	c.conns.minIdle = 0 // so that the used one could make room, too
	c.serve()
	used := c.dial()
	c.get(used)
	first, second := c.dial(), c.dial()
	third := c.dial()
	c.wantClosed(first)
	c.get(third)
	c.get(used)
	c.get(second)
	if c.server.Connections() != 3 || c.server.Evicted() != 1 || c.server.Refused() != 0 {
		t.Errorf("%d connections, %d made room, %d refused", c.server.Connections(), c.server.Evicted(), c.server.Refused())
	}
}

// A connection between two requests makes room once it has been so for a while. If all are
// in use, the new one is refused, and is told so.
func TestUsedConnectionsStay(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, 2)
	c.conns.minIdle, c.conns.pause = time.Hour, 0
	c.serve()
	busy, idle := c.dial(), c.dial()
	c.get(idle)
	c.send(busy, "/slow")
	<-c.entered
	refused := c.dial()
	if status, body := c.read(refused); status != http.StatusServiceUnavailable || !strings.Contains(body, "too many connections") {
		t.Errorf("got %d %s", status, body)
	}
	gomega.NewWithT(t).Eventually(c.pretend).WithArguments(2 * time.Hour).WithTimeout(hang.Guard).Should(gomega.BeTrue())
	late := c.dial()
	c.wantClosed(idle)
	c.get(late)
	close(c.release)
	if status, _ := c.read(busy); status != http.StatusOK {
		t.Errorf("the request in flight gets %d", status)
	}
}

// A silent connection makes room also if another address has more, all of them in use.
func TestSilentConnectionOfAnotherAddress(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, 2)
	c.serve()
	silent, busy := c.dial(), c.dial()
	c.send(busy, "/slow")
	<-c.entered
	gomega.NewWithT(t).Eventually(func() bool { // the one with the request is of an address that has more
		c.conns.mu.Lock()
		defer c.conns.mu.Unlock()
		for conn := range c.conns.open {
			if conn.is(http.StateActive) {
				delete(c.conns.byAddress, conn.address)
				conn.address = "192.0.2.1"
				c.conns.byAddress = map[string]int{"127.0.0.1": 1, conn.address: 2}
				return true
			}
		}
		return false
	}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
	next := c.dial()
	c.wantClosed(silent)
	c.get(next)
	close(c.release)
}

// The server remembers nothing of connections that are closed.
func TestClosedConnectionsAreForgotten(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, 4)
	c.serve()
	kept := c.dial()
	for range 300 {
		conn := c.dial()
		c.get(conn)
		_ = conn.Close()
		gomega.NewWithT(t).Eventually(c.server.Connections).WithTimeout(hang.Guard).Should(gomega.Equal(1))
	}
	c.conns.mu.Lock()
	open, addresses := len(c.conns.open), len(c.conns.byAddress)
	c.conns.mu.Unlock()
	if open != 1 || addresses != 1 {
		t.Errorf("%d connections and %d addresses are remembered", open, addresses)
	}
	c.get(kept)
}

// One look through all connections chooses several victims, the oldest first. A connection that
// gets a request meanwhile stays.
func TestVictimsAreChosenTogether(t *testing.T) {
	const limit = 4 * victimShare
	conns := newConnections(limit)
	open := func() *conn {
		c := &conn{TCPConn: &net.TCPConn{}, conns: conns, address: "192.0.2.1"}
		if !conns.admit(c) {
			t.Fatal("there is no room")
		}
		for victim := range conns.open {
			if victim.retired.Load() {
				conns.remove(victim) // as its reader does
			}
		}
		return c
	}
	var all []*conn
	for range limit {
		all = append(all, open())
	}
	isOpen := func(c *conn) bool { _, ok := conns.open[c]; return ok }
	open()
	if isOpen(all[0]) || !isOpen(all[1]) || len(conns.victims) != limit/victimShare-1 {
		t.Fatalf("the oldest is not the only victim, or %d others are chosen", len(conns.victims))
	}
	recordState(all[1], http.StateActive)
	_ = all[2].Close()
	open() // in the place of the closed one
	open()
	if !isOpen(all[1]) || isOpen(all[3]) || len(conns.open) != limit {
		t.Errorf("a connection with a request is evicted, or not the next victim; %d are open", len(conns.open))
	}
	open()
	if len(conns.victims) != limit/victimShare-1 || isOpen(all[4]) {
		t.Errorf("no other victims are chosen: %d", len(conns.victims))
	}
}
