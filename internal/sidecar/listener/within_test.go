package listener

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
)

// serveTLS serves HTTP within TLS. It returns a function that begins a connection without waiting for its handshake.
func (c *crowded) serveTLS() (secure func(net.Conn) net.Conn) {
	certificates := httptest.NewUnstartedServer(nil)
	certificates.StartTLS()
	config, trusts := certificates.TLS, certificates.Client().Transport.(*http.Transport).TLSClientConfig
	certificates.Close()
	go func() {
		_ = c.server.ServeWithin(c.tcp, func(l net.Listener) net.Listener {
			return tls.NewListener(l, &tls.Config{Certificates: config.Certificates})
		})
	}()
	c.t.Cleanup(func() { _ = c.server.Close() })
	return func(conn net.Conn) net.Conn {
		return tls.Client(conn, &tls.Config{RootCAs: trusts.RootCAs, ServerName: "example.com"})
	}
}

// Connections of TLS make room like others, also during their handshake. Those with a request in flight stay, and a client
// for which there is no room gets no text that is not TLS.
func TestConnectionsWithinTLS(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, 2)
	c.conns.minIdle, c.conns.pause = 0, 0
	secure := c.serveTLS()
	idle := secure(c.dial())
	c.get(idle)
	gomega.NewWithT(t).Eventually(c.conns.countIdle).WithTimeout(hang.Guard).Should(gomega.Equal(1))
	shakes := c.dial()
	if _, err := shakes.Write([]byte{0x16}); err != nil { // the first byte of a handshake
		t.Fatal(err)
	}
	gomega.NewWithT(t).Eventually(func() bool { return c.conns.unread() }).WithTimeout(hang.Guard).Should(gomega.BeFalse())
	first := secure(c.dial())
	c.wantClosed(shakes)
	c.send(first, "/slow")
	<-c.entered
	second := secure(c.dial())
	c.wantClosed(idle)
	c.send(second, "/slow")
	<-c.entered
	if n, err := io.Copy(io.Discard, c.dial()); n > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection too many gets %d bytes, and ends with %v", n, err)
	}
	if c.server.Connections() != 2 || c.server.Evicted() != 2 || c.server.Refused() != 1 {
		t.Errorf("%d connections, %d made room, %d refused", c.server.Connections(), c.server.Evicted(), c.server.Refused())
	}
	close(c.release)
	for _, conn := range []net.Conn{first, second} {
		if status, _ := c.read(conn); status != http.StatusOK {
			t.Errorf("a request in flight gets %d", status)
		}
	}
}

// unread reports whether a connection is silent, or has bytes that no read has taken.
func (l *connections) unread() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.silent.Load() || c.hasByte() {
			return true
		}
	}
	return false
}

// Requests within TLS that arrive just when the server shuts down are answered, and connections without one do not delay
// the end.
func TestShutdownWithinTLS(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, 100)
	secure := c.serveTLS()
	var conns []net.Conn
	for range 50 {
		conn := secure(c.dial())
		c.get(conn)
		conns = append(conns, conn)
	}
	gomega.NewWithT(t).Eventually(c.conns.countIdle).WithTimeout(hang.Guard).Should(gomega.Equal(len(conns)))
	for _, conn := range conns {
		c.send(conn, "/")
	}
	ended := make(chan error, 1)
	go func() { ended <- c.server.Shutdown(t.Context()) }()
	for _, conn := range conns {
		if response, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			t.Error(err)
		} else {
			_ = response.Body.Close()
		}
	}
	if err := <-ended; err != nil || c.server.Connections() != 0 {
		t.Errorf("%d connections are left, %v", c.server.Connections(), err)
	}
}
