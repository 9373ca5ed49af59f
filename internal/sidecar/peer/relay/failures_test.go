package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// post is a small call.
func post() *Request { return &Request{Method: "POST", Target: "/", Host: "x", Body: []byte("{}")} }

// hangUp closes the connection of a request without an answer.
func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func TestOwnerDiesBeforeTheAnswer(t *testing.T) {
	var requests atomic.Int32
	o, e := pair(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.URL.Path == "/die" {
			hangUp(w)
		}
	})
	for name, pooled := range map[string]bool{"fresh connection": false, "pooled connection": true} {
		t.Run(name, func(t *testing.T) {
			if pooled {
				if _, err := direct(t.Context(), e.relay, o.Owner, post()); err != nil {
					t.Fatal(err)
				}
			}
			requests.Store(0)
			request := post()
			request.Target = "/die"
			w, err := direct(t.Context(), e.relay, o.Owner, request)
			if !errors.Is(err, ErrLost) {
				t.Errorf("error is %v, want ErrLost", err)
			}
			if n := requests.Load(); n != 1 {
				t.Errorf("the owner got the call %d times", n)
			}
			if w.Body.Len() > 0 || len(w.Header()) > 0 {
				t.Errorf("the client got something: %v %q", w.Header(), w.Body)
			}
			if n := e.relay.Connections(); n != 0 {
				t.Errorf("%d connections are left", n)
			}
		})
	}
}

func TestOwnerDiesInTheMiddle(t *testing.T) {
	for name, header := range map[string]http.Header{
		"small, with length": {"Content-Length": {"100"}},
		"large, with length": {"Content-Length": {"1000000"}},
		"chunked":            {},
		"event stream":       {"Content-Type": {"text/event-stream"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, e := pair(t, func(w http.ResponseWriter, _ *http.Request) {
				for name := range header {
					w.Header().Set(name, header.Get(name))
				}
				_, _ = io.WriteString(w, "data: 1\n\n")
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			})
			response, err := http.Get(e.URL)
			if err == nil {
				_, err = io.ReadAll(response.Body)
				_ = response.Body.Close()
			}
			if err == nil {
				t.Error("the client takes a part for the whole")
			}
			if err := e.forwarded(t); !errors.Is(err, ErrCut) {
				t.Errorf("error is %v, want ErrCut", err)
			}
		})
	}
}

// TestOwnerClosesIdleConnections: a call on a connection that the owner has closed would be lost.
func TestOwnerClosesIdleConnections(t *testing.T) {
	o, e := pair(t, func(http.ResponseWriter, *http.Request) {})
	for i := range 20 {
		if w, err := direct(t.Context(), e.relay, o.Owner, post()); err != nil || w.Code != http.StatusOK {
			t.Fatalf("call %d: %d %v", i, w.Code, err)
		}
		o.closeIdle(t)
	}
	if n := e.relay.Dials(Connected); n != 20 {
		t.Errorf("the relay dialed %d times, want 20", n)
	}
}

// TestClosedUnderARequest has the owner close connections where the relay cannot see it in time.
func TestClosedUnderARequest(t *testing.T) {
	for name, test := range map[string]struct {
		method         string
		once, repeated bool
	}{"GET": {"GET", false, true}, "DELETE": {"DELETE", false, true}, "POST": {"POST", false, false}, "GET once": {"GET", true, false}} {
		t.Run(name, func(t *testing.T) {
			o, e := pair(t, func(http.ResponseWriter, *http.Request) {})
			if _, err := direct(t.Context(), e.relay, o.Owner, post()); err != nil {
				t.Fatal(err)
			}
			o.closeIdle(t)
			for _, p := range e.relay.pods {
				for c := range p.open {
					c.kernel = nil // blinds the relay
				}
			}
			request := post()
			request.Method, request.Once = test.method, test.once
			_, err := direct(t.Context(), e.relay, o.Owner, request)
			if test.repeated && err != nil || !test.repeated && !errors.Is(err, ErrLost) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// TestRepeatedOnce has an owner that closes every connection after the first answer.
func TestRepeatedOnce(t *testing.T) {
	var requests atomic.Int32
	o, e := pair(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) > 1 {
			hangUp(w)
		}
	})
	get := &Request{Method: "GET", Target: "/", Host: "x"}
	if _, err := direct(t.Context(), e.relay, o.Owner, get); err != nil {
		t.Fatal(err)
	}
	if _, err := direct(t.Context(), e.relay, o.Owner, get); !errors.Is(err, ErrLost) {
		t.Errorf("error is %v, want ErrLost", err)
	}
	if n := requests.Load(); n != 3 {
		t.Errorf("the owner got %d requests, want 3: one that it answers, and one twice", n)
	}
}

func TestEarlyAnswer(t *testing.T) {
	const size = 32 << 20
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	}
	t.Run("client that sends on", func(t *testing.T) {
		o, e := pair(t, refuse)
		for _, length := range []int64{size, -1} {
			request := post()
			request.Rest, request.ContentLength = &endless{left: size - len(request.Body)}, length
			w, err := direct(t.Context(), e.relay, o.Owner, request)
			if err != nil || w.Code != http.StatusRequestEntityTooLarge || w.Body.String() != "too large\n" {
				t.Errorf("answer is %d %q %v", w.Code, w.Body, err)
			}
			if n := e.relay.Connections(); n != 0 {
				t.Errorf("%d connections are left, but the request was not sent whole", n)
			}
		}
	})
	t.Run("body in memory", func(t *testing.T) {
		o, e := pair(t, refuse)
		request := post()
		request.Body = make([]byte, size)
		w, err := direct(t.Context(), e.relay, o.Owner, request)
		if err != nil || w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("answer is %d %v", w.Code, err)
		}
	})
	t.Run("client that pauses", func(t *testing.T) {
		_, e := pair(t, refuse)
		conn, err := net.Dial("tcp", e.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", 100<<10))
		answer := make([]byte, len("HTTP/1.1 413"))
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 413" {
			t.Errorf("answer is %q %v", answer, err)
		}
		if err := e.forwarded(t); err != nil {
			t.Errorf("Forward: %v", err)
		}
	})
}

// TestAnswerBeforeTheSenderIsDone has an owner that answers the whole body, while the goroutine that sent
// it has not run since. The client has done nothing wrong, so its connection must stay.
func TestAnswerBeforeTheSenderIsDone(t *testing.T) {
	for name, c := range map[string]struct {
		length int64
		last   int // no write is shorter than the last one, which has fewer bytes than this
	}{"length": {100 << 10, 5000}, "chunked": {-1, 100}} {
		t.Run(name, func(t *testing.T) {
			o := startOwner(t, func(w http.ResponseWriter, r *http.Request) {
				n, _ := io.Copy(io.Discard, r.Body)
				_, _ = fmt.Fprint(w, n)
			})
			var sticky *stickyConn
			r := New(Options{Handshake: handshake, WriteTimeout: time.Second, Limits: patient(Limits{}), Dial: func(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
				raw, err := dialTCP(ctx, address)
				sticky = &stickyConn{Conn: raw, last: c.last, released: make(chan struct{})}
				return sticky, err
			}})
			t.Cleanup(r.Close)
			rest := &endless{left: 100 << 10, atEnd: func() { sticky.sticks.Store(true) }}
			w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			err := r.Forward(t.Context(), w, o.Owner, &Request{Method: "POST", Target: "/", Host: "x", Rest: rest, ContentLength: c.length})
			if err != nil || w.Body.String() != "102400" || w.set {
				t.Errorf("answer is %q %v, and the client got a deadline: %v", w.Body, err, w.set)
			}
			if n := r.Connections(); n != 0 {
				t.Errorf("%d connections are left, but the relay has broken the sending off", n)
			}
		})
	}
}

// stickyConn sends what it has to send, but returns from the last write only when it gets a deadline.
type stickyConn struct {
	net.Conn
	last     int
	sticks   atomic.Bool
	released chan struct{}
	once     sync.Once
}

func (c *stickyConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.sticks.Load() && len(p) < c.last {
		<-c.released
	}
	return n, err
}

func (c *stickyConn) SetWriteDeadline(time.Time) error {
	c.once.Do(func() { close(c.released) })
	return nil
}

// deadlines notes whether the client's connection got a deadline for reads.
type deadlines struct {
	*httptest.ResponseRecorder
	set bool
}

func (d *deadlines) SetReadDeadline(time.Time) error { d.set = true; return nil }

// endless is a body that the client sends as fast as it can.
type endless struct {
	left  int
	atEnd func() // is called with the last bytes; may be nil
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), e.left)
	if e.left -= n; e.left > 0 {
		return n, nil
	}
	if e.atEnd != nil {
		e.atEnd()
	}
	return n, io.EOF
}

func TestNonsense(t *testing.T) {
	for name, answer := range map[string]string{
		"no HTTP":     "220 mail.example.com ESMTP\r\n\r\n",
		"no status":   "HTTP/1.1 000 Nothing\r\n\r\n",
		"upgrade":     "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"large head":  "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHead) + "\r\n\r\n",
		"hints":       strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: "+strings.Repeat("x", 1000)+"\r\n\r\n", maxHead/1000),
		"broken head": "HTTP/1.1 200 OK\r\nX: ",
	} {
		t.Run(name, func(t *testing.T) {
			o, e := pair(t, func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, answer)
				if name == "broken head" {
					_ = conn.Close()
				}
			})
			w, err := direct(t.Context(), e.relay, o.Owner, post())
			if !errors.Is(err, ErrLost) || len(w.Header()) > 0 {
				t.Errorf("error is %v, want ErrLost", err)
			}
		})
	}
}

func TestUnaskedAnswer(t *testing.T) {
	var conns atomic.Int32
	o, e := pair(t, func(w http.ResponseWriter, _ *http.Request) {
		conns.Add(1)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")
	})
	for range 2 {
		w, err := direct(t.Context(), e.relay, o.Owner, post())
		if err != nil || w.Body.String() != "ok" {
			t.Errorf("answer is %q %v", w.Body, err)
		}
	}
}

func TestDialOutcomes(t *testing.T) {
	own, theirs := adapterapi.NewKey(), adapterapi.NewKey() // the key of this pod, and one that it only accepts
	nothing := func(http.ResponseWriter, *http.Request) { t.Error("a stranger got a request") }
	on := func(serve func(net.Conn)) func(t *testing.T) sessionid.Owner {
		return func(t *testing.T) sessionid.Owner {
			l := listen(t)
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					serve(c)
				}
			}()
			return sessionid.Owner{UID: testUID, Address: addressOf(l)}
		}
	}
	for name, c := range map[string]struct {
		start func(t *testing.T) sessionid.Owner
		want  Outcome
	}{
		"refused": {func(t *testing.T) sessionid.Owner {
			l := listen(t)
			_ = l.Close()
			return sessionid.Owner{UID: testUID, Address: addressOf(l)}
		}, Refused},
		"other pod": {func(t *testing.T) sessionid.Owner {
			return startPod(t, newPod([16]byte{9}, own), nothing).Owner
		}, Stranger},
		"other server": {func(t *testing.T) sessionid.Owner {
			return startPod(t, newPod(testUID, adapterapi.NewKey()), nothing).Owner
		}, Stranger},
		"older TLS": {func(t *testing.T) sessionid.Owner {
			server := httptest.NewUnstartedServer(http.HandlerFunc(nothing))
			server.TLS = &tls.Config{MaxVersion: tls.VersionTLS12}
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			t.Cleanup(server.Close)
			return sessionid.Owner{UID: testUID, Address: addressOf(server.Listener)}
		}, Stranger},
		"no TLS": {on(func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }), Stranger},
		"closes": {on(func(c net.Conn) {
			_, _ = c.Read(make([]byte, 10000))
			_ = c.Close()
		}), Unready},
		"resets":       {on(func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() }), Unready},
		"says nothing": {on(func(net.Conn) {}), Unready},
		"does not accept this pod": {func(t *testing.T) sessionid.Owner {
			return startPod(t, newPod(testUID, theirs), nothing).Owner
		}, Unready},
	} {
		t.Run(name, func(t *testing.T) {
			limits := patient(Limits{})
			if name == "says nothing" {
				limits.DialTimeout = 300 * time.Millisecond
			}
			r := New(Options{Handshake: newPod([16]byte{0xee}, own, theirs).Handshake, WriteTimeout: time.Second, Limits: limits})
			t.Cleanup(r.Close)
			w, err := direct(t.Context(), r, c.start(t), post())
			wantDialError(t, err, c.want)
			if len(w.Header()) > 0 {
				t.Errorf("the client got %v", w.Header())
			}
			if n := r.Connections(); n != 0 {
				t.Errorf("%d connections are left", n)
			}
			if n := r.Forwards(c.want); n != 1 {
				t.Errorf("%d forwards counted", n)
			}
		})
	}
}

// TestWaitersShareAFailure: one attempt at a time, and one failure for all who wait.
func TestWaitersShareAFailure(t *testing.T) {
	l := listen(t) // accepts nothing
	r := New(Options{Handshake: handshake, WriteTimeout: time.Second, Limits: Limits{DialTimeout: 2 * time.Second}})
	t.Cleanup(r.Close)
	to := sessionid.Owner{UID: testUID, Address: addressOf(l)}
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			_, err := direct(t.Context(), r, to, post())
			wantDialError(t, err, Unready)
		})
	}
	gone := make(chan error)
	go func() {
		_, err := direct(ctx, r, to, post())
		gone <- err
	}()
	eventually(t, "all wait", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.pods[to] != nil && len(r.pods[to].waiting) == 11
	})
	leave()
	if err := <-gone; !errors.Is(err, ErrClient) || r.Dials(Unready) > 0 {
		t.Errorf("the client that leaves gets %v after %d attempts", err, r.Dials(Unready))
	}
	all.Wait()
	if n := r.Dials(Unready); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
}
