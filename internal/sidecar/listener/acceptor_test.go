package listener

import (
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
)

// net/http, which has buffers for each connection, gets one only when its client sends something.
func TestSilentConnectionsNeedNoBuffers(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, 4)
	atNetHTTP := make(chan string, 4)
	c.server.ConnState = func(of net.Conn, state http.ConnState) {
		if state == http.StateNew {
			atNetHTTP <- of.RemoteAddr().String()
		}
		recordState(of, state)
	}
	c.serve()
	silent, talks := c.dial(), c.dial()
	c.get(talks)
	if got := <-atNetHTTP; got != talks.LocalAddr().String() || len(atNetHTTP) > 0 {
		t.Errorf("net/http got the connection of %s and %d others; %s was silent", got, len(atNetHTTP), silent.LocalAddr())
	}
	c.get(silent)
	if got := <-atNetHTTP; got != silent.LocalAddr().String() {
		t.Errorf("net/http got the connection of %s", got)
	}
}

// A client that opens a connection and sends nothing does not keep it.
func TestSilentConnectionsEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*crowded, *net.TCPConn){
		"when the client leaves":     func(_ *crowded, silent *net.TCPConn) { _ = silent.CloseWrite() },
		"after the time for headers": func(c *crowded, _ *net.TCPConn) { c.enforce(HeaderTimeout + time.Second) },
		"when the server shuts down": func(c *crowded, _ *net.TCPConn) { _ = c.server.Shutdown(c.t.Context()) },
		"when the server is closed":  func(c *crowded, _ *net.TCPConn) { _ = c.server.Close() },
		"when the client leaves in the middle of a request": func(c *crowded, silent *net.TCPConn) {
			if _, err := io.WriteString(silent, "GET"); err != nil {
				c.t.Fatal(err)
			}
			_ = silent.CloseWrite()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowded(t, 4)
			c.serve()
			silent := c.dial()
			c.enforce(HeaderTimeout - time.Second)
			if c.server.Connections() != 1 {
				t.Fatal("the connection is closed early")
			}
			end(c, silent.(*net.TCPConn))
			_ = silent.SetReadDeadline(time.Now().Add(hang.Guard))
			if _, err := io.Copy(io.Discard, silent); isTimeout(err) {
				t.Error("the connection stays open")
			}
			gomega.NewWithT(t).Eventually(c.server.Connections).WithTimeout(hang.Guard).Should(gomega.BeZero())
		})
	}
}

// failing is a listener that once has no file descriptor for a connection.
type failing struct {
	net.Listener
	failed bool
}

func (l *failing) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// After an error that passes, the server goes on.
func TestAcceptFails(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, 4)
	c.tcp = &failing{Listener: c.tcp}
	c.serve()
	c.get(c.dial())
}

// Accept ends when the listener is closed, also while a connection waits to be accepted.
func TestAcceptorCloses(t *testing.T) {
	t.Parallel()
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := newAcceptor(tcp, newConnections(4))
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		a.run()
	}()
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	gomega.NewWithT(t).Eventually(func() bool { return a.conns.count() == 1 && len(a.conns.silent()) == 0 }).
		WithTimeout(hang.Guard).Should(gomega.BeTrue())
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the second Close returns %v", err)
	}
	if _, err := a.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept returns %v", err)
	}
	<-ran
	gomega.NewWithT(t).Eventually(a.conns.count).WithTimeout(hang.Guard).Should(gomega.BeZero())
}
