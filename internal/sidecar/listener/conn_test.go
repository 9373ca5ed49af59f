package listener

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/test/hang"
)

// connect returns both ends of a connection; the server has ours. It enforces deadlines
// when the test calls enforceDeadline.
func connect(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := newAcceptor(tcp, newConnections(8))
	go listener.run()
	t.Cleanup(func() { _ = listener.Close() })
	if theirs, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", tcp.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if ours, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	if n, err := ours.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Fatalf("read %d bytes, %v", n, err)
	}
	t.Cleanup(func() {
		_ = errors.Join(ours.Close(), theirs.Close())
		if listener.conns.count() != 0 {
			t.Error("a connection is not forgotten when it is closed")
		}
	})
	return ours, theirs
}

// Whatever was set before, it is the deadline that was set last by which a read ends.
func TestReadDeadlines(t *testing.T) {
	// The clock of the connections is an hour late, so that soon has passed.
	const never, past, soon, look, later = 0, -time.Hour, time.Second, time.Minute, 24 * time.Hour
	for name, test := range map[string]struct {
		deadlines []time.Duration
		ends      bool
	}{
		"one":                   {[]time.Duration{soon}, true},
		"earlier":               {[]time.Duration{later, soon}, true},
		"none":                  {[]time.Duration{never}, false},
		"taken back":            {[]time.Duration{soon, never}, false},
		"later":                 {[]time.Duration{soon, later}, false},
		"past":                  {[]time.Duration{past}, true},
		"past, taken back":      {[]time.Duration{past, never}, false},
		"past, later":           {[]time.Duration{past, later}, false},
		"past, soon":            {[]time.Duration{past, soon}, true},
		"past, taken back, set": {[]time.Duration{past, never, soon}, true},
		"as net/http does":      {[]time.Duration{later, later, never, past, never, later, soon}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			accepted, theirs := connect(t)
			ours := accepted.(*conn)
			now := time.Now().Add(-time.Hour)
			ours.conns.checked.Store(now.UnixNano())
			for _, deadline := range test.deadlines {
				at := time.Time{}
				if deadline != never {
					at = now.Add(deadline)
				}
				if err := ours.SetReadDeadline(at); err != nil {
					t.Fatal(err)
				}
			}
			ours.enforceDeadline(now.Add(look))
			if !test.ends { // there is something to read
				if _, err := theirs.Write([]byte{1}); err != nil {
					t.Fatal(err)
				}
			}
			n, err := ours.Read(make([]byte, 1))
			if ended := errors.Is(err, os.ErrDeadlineExceeded); ended != test.ends || !ended && (n != 1 || err != nil) {
				t.Errorf("read %d bytes, %v", n, err)
			}
		})
	}
}

// A read that waits already is ended by a deadline that has passed, and a new one waits.
func TestDeadlineEndsARead(t *testing.T) {
	ours, theirs := connect(t)
	ended := make(chan error, 1)
	for range 3 {
		if err := ours.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := ours.Read(make([]byte, 1))
			ended <- err
		}()
		if err := ours.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
	}
	if err := ours.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if n, err := ours.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

// A client that does not finish its headers is not waited for: only the enforcement of
// deadlines ends such a read.
func TestSlowHeaders(t *testing.T) {
	t.Parallel()
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(nil, 8, logr.Discard())
	go server.Run(t.Context())
	if server.ReadHeaderTimeout != HeaderTimeout {
		t.Errorf("the server waits for %s", server.ReadHeaderTimeout)
	}
	server.ReadHeaderTimeout = time.Millisecond
	go func() { _ = server.Serve(tcp) }()
	t.Cleanup(func() { _ = server.Close() })
	sendHalfOfTheHeaders(t, tcp.Addr().String())
}

// sendHalfOfTheHeaders returns when the server has closed the connection.
func sendHalfOfTheHeaders(t *testing.T, address string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = conn.Write([]byte("POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")) // if it is not closed already
	if err := conn.SetReadDeadline(time.Now().Add(hang.Guard)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is not closed")
	}
}
