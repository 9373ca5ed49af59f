package trust

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	connections "github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/test/hang"
)

// isOpen says whether the other side of a connection in memory has not closed it.
func isOpen(conn net.Conn) bool {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, conn)
	}()
	synctest.Wait()
	select {
	case <-closed:
		return false
	default:
		return true
	}
}

// Strangers that connect and say nothing keep no pod from connecting as long as there is a place.
// They lose it when their time is over.
func TestSilentStrangers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ring := ringOf(adapterapi.NewKey())
		port := newPipes()
		there := Listen(port, New(ring, red), logr.Discard())
		connect := func() error {
			raw := port.dial()
			defer func() { _ = raw.Close() }()
			if _, err := New(ring, blue).Handshake(t.Context(), raw, red); err != nil {
				return err
			}
			conn, err := there.Accept()
			if err != nil {
				return err
			}
			synctest.Wait() // until the connection has left its place
			return conn.(*tls.Conn).NetConn().Close()
		}
		begin := time.Now()
		var silent []net.Conn
		for range maxHandshakes - 1 {
			silent = append(silent, port.dial())
		}
		for range 3 { // each leaves its place to the next
			if err := connect(); err != nil {
				t.Errorf("with one place left: %v", err)
			}
		}
		silent = append(silent, port.dial())
		if err := connect(); err == nil || errors.Is(err, ErrStranger) {
			t.Errorf("with no place left: %v", err)
		}
		if isOpen(port.dial()) {
			t.Error("a connection too many stays open")
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("this took %s", took)
		}
		for _, conn := range silent {
			if !isOpen(conn) {
				t.Error("a silent connection is closed early")
			}
		}
		time.Sleep(handshakeTimeout - 1)
		if !isOpen(silent[0]) {
			t.Error("a silent connection is closed early")
		}
		time.Sleep(time.Nanosecond)
		for _, conn := range silent {
			if isOpen(conn) {
				t.Error("a silent connection stays open")
			}
		}
		if err := connect(); err != nil {
			t.Errorf("when all places are free again: %v", err)
		}
		_ = there.Close()
	})
}

// Close ends the connections that Accept has not returned, whether they have done their handshake or
// not, and leaves no goroutine: synctest fails the test for one that stays.
func TestListenerCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ring := ringOf(adapterapi.NewKey())
		port := newPipes()
		there := Listen(port, New(ring, red), logr.Discard())
		silent, done := port.dial(), port.dial()
		if _, err := New(ring, blue).Handshake(t.Context(), done, red); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until the listener has done its part of the handshake, too
		begin := time.Now()
		if err := there.Close(); err != nil {
			t.Error(err)
		}
		if isOpen(silent) || isOpen(done) || time.Since(begin) != 0 {
			t.Errorf("connections stay open, or end after %s", time.Since(begin))
		}
		if err := there.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the second Close returns %v", err)
		}
		if _, err := there.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept returns %v", err)
		}
	})
}

// Accept ends, each time, when the inner listener is closed by itself.
func TestInnerListenerIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		port := newPipes()
		there := Listen(port, New(ringOf(adapterapi.NewKey()), red), logr.Discard())
		_ = port.Close()
		for range 2 {
			if _, err := there.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept returns %v", err)
			}
		}
		_ = there.Close()
	})
}

// failing is a listener that once has no file descriptor for a connection.
type failing struct {
	net.Listener
	failed atomic.Bool
}

func (l *failing) Accept() (net.Conn, error) {
	if l.failed.CompareAndSwap(false, true) {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// The server of other ports serves this one, too: its handlers see which pod asks. It goes on after
// an error that passes, and ends.
func TestServer(t *testing.T) {
	t.Parallel()
	ring := ringOf(adapterapi.NewKey())
	server := connections.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := podIn(r.TLS.PeerCertificates[0])
		if err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, r.Proto+" for "+formatUID(from))
	}), 1, logr.Discard())
	tcp := listen(t)
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(listenWithin(hang.Guard, &failing{Listener: tcp}, New(ring, red), logr.Discard()))
	}()

	dialed := 0
	client := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true,
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			dialed++
			raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", tcp.Addr().String())
			if err != nil {
				return nil, err
			}
			return New(ring, blue).Handshake(ctx, raw, red)
		},
	}}
	for range 3 {
		answer, err := client.Get("https://pod/")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if want := "HTTP/1.1 for " + formatUID(blue); err != nil || string(text) != want {
			t.Errorf("got %q, %v; want %q", text, err, want)
		}
	}
	if dialed != 1 {
		t.Errorf("there are %d connections for requests one after the other", dialed)
	}
	silent := dial(t, tcp)
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("the server ends with %v", err)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("a connection has got a byte")
	}
}

// A panic in a handshake ends that handshake alone, and the log tells it.
func TestPanicInHandshake(t *testing.T) {
	t.Parallel()
	key := adapterapi.NewKey()
	var panics atomic.Bool
	panics.Store(true)
	var mu sync.Mutex
	var log strings.Builder
	logger := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		log.WriteString(args + "\n")
	}, funcr.Options{})
	tcp := listen(t)
	there := listenWithin(hang.Guard, tcp, New(func() adapterapi.Keyring {
		if panics.Swap(false) {
			panic("a strange certificate")
		}
		return adapterapi.Keyring{Current: key}
	}, red), logger)
	defer func() { _ = there.Close() }()
	pod := New(ringOf(key), blue)
	if _, err := pod.Handshake(t.Context(), dial(t, tcp), red); err == nil || errors.Is(err, ErrStranger) {
		t.Errorf("the first handshake: %v", err)
	}
	if _, err := pod.Handshake(t.Context(), dial(t, tcp), red); err != nil {
		t.Errorf("the second handshake: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if strings.Count(log.String(), "a strange certificate") != 1 {
		t.Errorf("the log has %q", log.String())
	}
}
