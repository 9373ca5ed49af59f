package listener

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
)

// Clients send requests on idle and on new connections just when the server shuts down. All of them get an answer.
func TestShutdownLosesNoRequest(t *testing.T) {
	const clients = 200
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), clients, logr.Discard())
	served := make(chan error, 1)
	go func() { served <- server.Serve(tcp) }()
	var conns []net.Conn
	var readers []*bufio.Reader
	for i := range clients {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", tcp.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(hang.Guard))
		conns, readers = append(conns, conn), append(readers, bufio.NewReader(conn))
		if i%2 == 0 {
			writeRequest(t, conn)
			if got, err := readStatus(readers[i]); err != nil || got != http.StatusNoContent {
				t.Fatalf("the first request: %d, %v", got, err)
			}
		}
	}
	gomega.NewWithT(t).Eventually(func() int { return server.conns.countIdle() }).WithTimeout(hang.Guard).Should(gomega.Equal(clients / 2))
	gomega.NewWithT(t).Eventually(server.Connections).WithTimeout(hang.Guard).Should(gomega.Equal(clients))
	for _, conn := range conns {
		writeRequest(t, conn)
	}
	var clientsEnd sync.WaitGroup
	answers := make([]error, clients)
	for i := range clients {
		clientsEnd.Go(func() {
			if got, err := readStatus(readers[i]); err != nil || got != http.StatusNoContent {
				answers[i] = errors.Join(err, errors.New(http.StatusText(got)))
			}
		})
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	clientsEnd.Wait()
	for i, err := range answers {
		if err != nil {
			t.Errorf("client %d: %v", i, err)
		}
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) || server.Connections() != 0 {
		t.Errorf("Serve returns %v, and %d connections are left", err, server.Connections())
	}
}

func writeRequest(t *testing.T, to io.Writer) {
	t.Helper()
	if _, err := io.WriteString(to, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
}

func readStatus(from *bufio.Reader) (int, error) {
	response, err := http.ReadResponse(from, nil)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// countIdle returns how many connections wait for another request.
func (l *connections) countIdle() (count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.is(http.StateIdle) {
			count++
		}
	}
	return count
}

// A connection ends unless a request has arrived, whatever ends it.
func TestRequestThatArrivesBeforeTheEnd(t *testing.T) {
	expire := func(c *conn) {
		_ = c.SetReadDeadline(time.Now().Add(-time.Hour))
		c.enforceDeadline(time.Now())
	}
	type outcome struct{ Ended, Read, WaitsAgain bool }
	ends, lives := outcome{Ended: true}, outcome{Read: true, WaitsAgain: true}
	for name, test := range map[string]struct {
		state   http.ConnState
		end     func(*conn)
		arrives bool
		want    outcome
	}{
		"idle, retired":                  {http.StateIdle, (*conn).retire, false, ends},
		"idle, retired, a request":       {http.StateIdle, (*conn).retire, true, lives},
		"idle, expired":                  {http.StateIdle, expire, false, ends},
		"idle, expired, a request":       {http.StateIdle, expire, true, lives},
		"new, retired":                   {http.StateNew, (*conn).retire, false, ends},
		"new, retired, a request":        {http.StateNew, (*conn).retire, true, lives},
		"in flight, retired":             {http.StateActive, (*conn).retire, true, lives},
		"in flight, expired, body waits": {http.StateActive, expire, true, ends},
		"retired before its next deadline": {http.StateIdle, func(c *conn) {
			c.retire()
			_ = c.SetReadDeadline(time.Now().Add(time.Hour)) // net/http sets it when a request is over
		}, false, ends},
		"retired when its request was read": {http.StateIdle, func(c *conn) {
			c.retire()
			recordState(c, http.StateActive)
		}, true, lives},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			accepted, theirs := connect(t)
			ours := accepted.(*conn)
			ours.state.Store(int32(test.state))
			if test.arrives {
				writeByte(t, ours, theirs)
			}
			test.end(ours)
			var got outcome
			n, err := ours.Read(make([]byte, 2))
			got.Ended, got.Read = errors.Is(err, os.ErrDeadlineExceeded), n == 1 && err == nil
			if got.Read {
				writeByte(t, ours, theirs)
				n, err = ours.Read(make([]byte, 2))
				got.WaitsAgain = n == 1 && err == nil && !ours.retired.Load()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

// writeByte returns when the byte has arrived.
func writeByte(t *testing.T, ours *conn, theirs net.Conn) {
	t.Helper()
	if _, err := theirs.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	gomega.NewWithT(t).Eventually(ours.hasByte).WithTimeout(hang.Guard).Should(gomega.BeTrue())
}

// A read that waits already gets the request that arrives just when the connection is retired.
func TestRetireWhileAReadWaits(t *testing.T) {
	accepted, theirs := connect(t)
	ours := accepted.(*conn)
	ours.state.Store(int32(http.StateIdle))
	for range 200 {
		read := make(chan error, 1)
		go func() {
			n, err := ours.Read(make([]byte, 2))
			if n != 1 && err == nil {
				err = errors.New("not one byte")
			}
			read <- err
		}()
		written := make(chan struct{})
		go func() {
			defer close(written)
			_, _ = theirs.Write([]byte{1})
		}()
		ours.retire()
		<-written
		if err := <-read; err != nil { // it was retired before
			ours.revive()
			if n, err := ours.Read(make([]byte, 2)); n != 1 || err != nil {
				t.Fatalf("the byte is lost: %v", err)
			}
		}
		ours.revive()
	}
}

// A client that sends its first byte in the moment in which its time is over is served.
func TestFirstByteWithTheDeadline(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, 4)
	accepted, theirs := connect(t)
	ours := accepted.(*conn)
	ours.silent.Store(true)
	writeByte(t, ours, theirs)
	ours.retire()
	a := newAcceptor(c.tcp, ours.conns)
	defer func() { _ = a.Close() }()
	go a.awaitFirstByte(ours)
	handed, err := a.Accept()
	if err != nil || handed != net.Conn(ours) {
		t.Fatalf("Accept returns %v, %v", handed, err)
	}
	if n, err := ours.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

// A connection on which a request waits to be read is no victim: the next one is.
func TestNoVictimHasARequest(t *testing.T) {
	accepted, theirs := connect(t)
	ours := accepted.(*conn)
	writeByte(t, ours, theirs)
	other := &conn{TCPConn: &net.TCPConn{}, conns: ours.conns, address: "192.0.2.1"}
	ours.conns.limit = 2
	if !ours.conns.admit(other) {
		t.Fatal("there is no room")
	}
	next := &conn{TCPConn: &net.TCPConn{}, conns: ours.conns, address: "192.0.2.1"}
	if !ours.conns.admit(next) || !other.retired.Load() || ours.retired.Load() {
		t.Errorf("the one with a request is retired: %t, the other: %t", ours.retired.Load(), other.retired.Load())
	}
	ours.conns.remove(other)
	ours.conns.remove(next)
}
