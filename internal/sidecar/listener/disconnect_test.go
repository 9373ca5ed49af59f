package listener

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/test/hang"
)

// serveWatched serves a handler by a server of its own, and connects to it. The handler can
// wait until the server peeks at its connection.
func serveWatched(t *testing.T, handler func(w http.ResponseWriter, r *http.Request, awaitPeek func())) net.Conn {
	t.Helper()
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var server *Server
	server = NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		handler(w, r, func() {
			for deadline := time.Now().Add(hang.Guard); !server.conns.peeking(); {
				if time.Now().After(deadline) {
					t.Error("the server does not peek at the connection")
					return
				}
				time.Sleep(time.Millisecond) // between two looks at a condition
			}
		})
	}), 8, logr.Discard())
	go func() { _ = server.Serve(tcp) }()
	t.Cleanup(func() { _ = server.Close() })
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * hang.Guard)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// peeking says whether the server waits for a client to close its connection.
func (l *connections) peeking() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		c.mu.Lock()
		peeking := c.watch.peeking
		c.mu.Unlock()
		if peeking == nil {
			continue
		}
		select {
		case <-peeking:
		default:
			return true
		}
	}
	return false
}

func send(t *testing.T, conn net.Conn, requests ...string) {
	t.Helper()
	var text []byte
	for _, body := range requests {
		text = fmt.Appendf(text, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	if _, err := conn.Write(text); err != nil {
		t.Fatal(err)
	}
}

// A request ends when its client goes away: at once, or when it has been answered for a while.
func TestDisconnectCancelsTheRequest(t *testing.T) {
	for name, late := range map[string]bool{"at once": false, "while the server peeks": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, ended := make(chan struct{}), make(chan error, 1)
			conn := serveWatched(t, func(_ http.ResponseWriter, r *http.Request, awaitPeek func()) {
				if late {
					awaitPeek()
				}
				close(arrived)
				select {
				case <-r.Context().Done():
					ended <- r.Context().Err()
				case <-time.After(hang.Guard):
					ended <- nil
				}
			})
			send(t, conn, "x")
			<-arrived
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the request ended with %v", err)
			}
		})
	}
}

// Requests that follow each other on a connection are served however long each takes, also
// if a client sends the next one early.
func TestWatchLeavesRequestsAlone(t *testing.T) {
	for name, together := range map[string]bool{"one after the other": false, "together": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests := []string{"quick", "slow", "slow", "quick", "slow", "quick", "quick"}
			served := 0
			conn := serveWatched(t, func(w http.ResponseWriter, r *http.Request, awaitPeek func()) {
				if requests[served] == "slow" && !together { // a byte that has come ends the peek
					awaitPeek()
				}
				served++
				if r.Context().Err() != nil {
					t.Errorf("request %d was cancelled", served)
				}
				_, _ = io.WriteString(w, "ok")
			})
			reader := bufio.NewReader(conn)
			if together {
				send(t, conn, requests...)
			}
			for i := range requests {
				if !together {
					send(t, conn, requests[i])
				}
				response, err := http.ReadResponse(reader, nil)
				if err != nil {
					t.Fatalf("request %d: %v", i+1, err)
				}
				if body, err := io.ReadAll(response.Body); err != nil || string(body) != "ok" {
					t.Fatalf("request %d: got %q, %v", i+1, body, err)
				}
				_ = response.Body.Close()
			}
		})
	}
}

// A reader that reads byte by byte gets every one: not only net/http's watch for the client
// asks for a single byte. A header line that all but fills the buffer ends like that.
func TestWatchLosesNoByte(t *testing.T) {
	ours, theirs := connect(t)
	watchDisconnect(t.Context(), ours)
	text := strings.Repeat("abc", 50)
	go func() { _, _ = io.WriteString(theirs, text) }()
	var got []byte
	for one := make([]byte, 1); len(got) < len(text); got = append(got, one...) {
		if _, err := io.ReadFull(ours, one); err != nil {
			t.Fatal(err)
		}
	}
	if string(got) != text {
		t.Errorf("read %q", got)
	}
}

// A watch that begins when its request is over finds the deadline by which net/http ends its
// own. That is no sign that the client has gone.
func TestWatchIgnoresDeadlines(t *testing.T) {
	accepted, _ := connect(t)
	ours := accepted.(*conn)
	ctx := watchDisconnect(t.Context(), ours)
	for range 3 {
		if err := ours.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if n, err := ours.Read(make([]byte, 1)); n != 0 || err != nil {
			t.Fatalf("read %d bytes, %v", n, err)
		}
		for deadline := time.Now().Add(hang.Guard); ; time.Sleep(time.Millisecond) { // between two looks at a condition
			ours.mu.Lock()
			peeking := ours.watch.peeking
			ours.mu.Unlock()
			if peeking != nil {
				<-peeking
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the watch does not begin")
			}
		}
		if err := ours.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		ours.endWatch()
	}
	if ctx.Err() != nil {
		t.Error("the client is taken for gone")
	}
}
