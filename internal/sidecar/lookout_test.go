package sidecar

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

	"github.com/slipway-mcp/slipway/test/hang"
)

// serveLookout serves a handler by a listener of its own, and connects to it. The handler
// can wait until the lookout watches its client.
func serveLookout(t *testing.T, handler func(w http.ResponseWriter, r *http.Request, awaitLook func())) net.Conn {
	t.Helper()
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := newPatientListener(tcp, 8)
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		handler(w, r, func() {
			for deadline := time.Now().Add(hang.Guard); !listener.looking(); {
				if time.Now().After(deadline) {
					t.Error("the lookout does not watch the client")
					return
				}
				time.Sleep(time.Millisecond) // between two looks at a condition
			}
		})
	}))
	go func() { _ = server.Serve(listener) }()
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

// looking says whether the lookout of a connection is waiting for its client.
func (l *patientListener) looking() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.mu.Lock()
		looking := c.watch.looking
		c.mu.Unlock()
		if looking == nil {
			continue
		}
		select {
		case <-looking:
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
func TestLookoutSeesTheClientGo(t *testing.T) {
	for name, late := range map[string]bool{"at once": false, "while the lookout watches": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, ended := make(chan struct{}), make(chan error, 1)
			conn := serveLookout(t, func(_ http.ResponseWriter, r *http.Request, awaitLook func()) {
				if late {
					awaitLook()
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
func TestLookoutLeavesRequestsAlone(t *testing.T) {
	for name, together := range map[string]bool{"one after the other": false, "together": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests := []string{"quick", "slow", "slow", "quick", "slow", "quick", "quick"}
			served := 0
			conn := serveLookout(t, func(w http.ResponseWriter, r *http.Request, awaitLook func()) {
				if requests[served] == "slow" && !together { // a byte that has come ends the look
					awaitLook()
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

// A reader that reads byte by byte gets every one: not only net/http's look at the client
// asks for a single byte. A header line that all but fills the buffer ends like that.
func TestLookoutLosesNoByte(t *testing.T) {
	ours, theirs := connect(t)
	watchClients(t.Context(), ours)
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

// A lookout that begins when its request is over finds the deadline by which net/http ends
// its own look. That is no sign that the client has gone.
func TestLookoutIgnoresDeadlines(t *testing.T) {
	conn, _ := connect(t)
	ours := conn.(*patientConn)
	ctx := watchClients(t.Context(), ours)
	for range 3 {
		if err := ours.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if n, err := ours.Read(make([]byte, 1)); n != 0 || err != nil {
			t.Fatalf("read %d bytes, %v", n, err)
		}
		for deadline := time.Now().Add(hang.Guard); ; time.Sleep(time.Millisecond) { // between two looks at a condition
			ours.mu.Lock()
			looking := ours.watch.looking
			ours.mu.Unlock()
			if looking != nil {
				<-looking
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the lookout does not begin")
			}
		}
		if err := ours.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		ours.endLookout()
	}
	if ctx.Err() != nil {
		t.Error("the client is taken for gone")
	}
}
