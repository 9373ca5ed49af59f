package sidecar

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"testing"
	"time"
)

// connect returns both ends of a connection; ours is patient.
func connect(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := newPatientListener(tcp)
	t.Cleanup(func() { _ = listener.Close() })
	go listener.run(t.Context())
	if theirs, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", tcp.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if ours, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = errors.Join(ours.Close(), theirs.Close())
		if len(listener.conns) != 0 {
			t.Error("a connection is not forgotten when it is closed")
		}
	})
	return ours, theirs
}

// Whatever was set before, it is the deadline that was set last by which a read ends.
func TestPatientDeadlines(t *testing.T) {
	const never, past, soon, later = 0, -time.Hour, lookInterval / 2, time.Hour
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
			ours, theirs := connect(t)
			for _, deadline := range test.deadlines {
				at := time.Time{}
				if deadline != never {
					at = time.Now().Add(deadline)
				}
				if err := ours.SetReadDeadline(at); err != nil {
					t.Fatal(err)
				}
			}
			// A read that is not to end has something to read long after it would have.
			time.AfterFunc(4*lookInterval, func() { _, _ = theirs.Write([]byte{1}) })
			n, err := ours.Read(make([]byte, 1))
			if ended := errors.Is(err, os.ErrDeadlineExceeded); ended != test.ends || !ended && (n != 1 || err != nil) {
				t.Errorf("read %d bytes, %v", n, err)
			}
		})
	}
}

// A read that waits already is ended by a deadline that has passed, and a new one waits.
func TestPatientReadIsEnded(t *testing.T) {
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

// A client that does not finish its headers is not waited for: nothing but the listener's
// look ends such a read.
func TestSlowHeaders(t *testing.T) {
	t.Parallel()
	_, address := startAdapter(t, nil)
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := conn.SetReadDeadline(begin.Add(headerTimeout + 5*lookInterval)); err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, conn)
	if took := time.Since(begin); err != nil || took < headerTimeout-lookInterval {
		t.Errorf("the connection ended after %s with %v, want after about %s", took, err, headerTimeout)
	}
}
