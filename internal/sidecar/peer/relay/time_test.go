package relay

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/trust"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// network connects pods in memory, so that tests have a clock of their own.
type network struct {
	accept chan net.Conn
	done   chan struct{}
	silent atomic.Bool // nothing gets through any more, in either direction
	refuse atomic.Bool // new connections
	busy   atomic.Bool // connections succeed, and nothing more
	pings  atomic.Int32
	dials  atomic.Int32
}

// Accept implements net.Listener.
func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.accept:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *network) Close() error { close(n.done); return nil }

// Addr implements net.Listener.
func (*network) Addr() net.Addr { return &net.TCPAddr{} }

func (n *network) dial(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
	n.dials.Add(1)
	switch {
	case n.refuse.Load():
		return nil, syscall.ECONNREFUSED
	case n.silent.Load():
		<-ctx.Done()
		return nil, ctx.Err()
	}
	near, far := net.Pipe()
	if n.busy.Load() {
		return near, nil
	}
	n.accept <- far
	return &line{Conn: near, network: n, closed: make(chan struct{})}, nil
}

// line is the near end of a connection.
type line struct {
	net.Conn
	network *network
	once    sync.Once
	closed  chan struct{}
}

func (l *line) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if l.network.silent.Load() {
		<-l.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (l *line) Write(p []byte) (int, error) {
	if l.network.silent.Load() {
		return len(p), nil
	}
	return l.Conn.Write(p)
}

func (l *line) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Conn.Close()
}

// inMemory starts an owner and a relay with a clock of their own. Calls to /wait take a minute, and GET
// is a stream with an event every second.
func inMemory(t *testing.T, test func(t *testing.T, r *Relay, to sessionid.Owner, n *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &network{accept: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{ReadHeaderTimeout: listener.HeaderTimeout, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			wait := func(d time.Duration) bool {
				select {
				case <-time.After(d):
					return true
				case <-r.Context().Done():
					return false
				}
			}
			switch {
			case r.URL.Path == PingPath:
				n.pings.Add(1)
			case r.Method == http.MethodGet:
				w.Header().Set("Content-Type", "text/event-stream")
				for wait(time.Second) {
					_, _ = io.WriteString(w, "data: 1\n\n")
					_ = http.NewResponseController(w).Flush()
				}
			case r.URL.Path == "/wait":
				wait(time.Minute)
			}
		})}
		go func() { _ = server.Serve(trust.Listen(n, newPod(testUID, testKey), logr.Discard())) }()
		r := New(Options{Handshake: handshake, WriteTimeout: time.Minute, Dial: n.dial})
		test(t, r, sessionid.Owner{UID: testUID, Address: netip.MustParseAddrPort("10.0.0.1:16272")}, n)
		r.Close()
		_ = server.Close()
		synctest.Wait()
	})
}

func TestSilentPod(t *testing.T) {
	inMemory(t, func(t *testing.T, r *Relay, to sessionid.Owner, n *network) {
		const after = 10500 * time.Millisecond
		begin := time.Now()
		var all sync.WaitGroup
		for want, request := range map[error]*Request{
			ErrLost: {Method: "POST", Target: "/wait", Host: "x"},
			ErrCut:  {Method: "GET", Target: "/", Host: "x"},
		} {
			for range 10 {
				all.Go(func() {
					_, err := direct(t.Context(), r, to, request)
					if !errors.Is(err, want) {
						t.Errorf("error is %v, want %v", err, want)
					}
					if took := time.Since(begin) - after; took < 0 || took > 5*time.Second {
						t.Errorf("%s fails %v after the pod fell silent", request.Method, took)
					}
				})
			}
		}
		time.Sleep(after)
		n.silent.Store(true)
		all.Wait()
		if c := r.Connections(); c != 0 {
			t.Errorf("%d connections are left", c)
		}
		_, err := direct(t.Context(), r, to, post())
		wantDialError(t, err, Unreachable)
		n.silent.Store(false) // it comes back
		if _, err := direct(t.Context(), r, to, post()); err != nil {
			t.Error(err)
		}
	})
}

func TestPingsStopWithTheLastRequest(t *testing.T) {
	inMemory(t, func(t *testing.T, r *Relay, to sessionid.Owner, n *network) {
		ctx, leave := context.WithTimeout(t.Context(), DefaultPingInterval+time.Second)
		defer leave()
		time.AfterFunc(time.Second, func() { n.silent.Store(true) })
		if _, err := direct(ctx, r, to, &Request{Method: "POST", Target: "/wait", Host: "x"}); !errors.Is(err, ErrClient) {
			t.Errorf("error is %v, want ErrClient", err)
		}
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.pods[to].ping.stop != nil {
			t.Error("a ping is under way without requests in flight")
		}
	})
}

// TestQuietPod: a call may take long as long as the pod answers pings. Then nothing is left of it.
func TestQuietPod(t *testing.T) {
	inMemory(t, func(t *testing.T, r *Relay, to sessionid.Owner, n *network) {
		if _, err := direct(t.Context(), r, to, &Request{Method: "POST", Target: "/wait", Host: "x"}); err != nil {
			t.Error(err)
		}
		if got := n.pings.Load(); got < 29 || got > 30 {
			t.Errorf("%d pings in a minute, want one every 2 s", got)
		}
		if got := n.dials.Load(); got != 2 {
			t.Errorf("%d connections, want one for the call and one for all pings", got)
		}
		state := func(after time.Duration, connections, pods int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.Connections() != connections || len(r.pods) != pods {
				t.Errorf("%d connections and %d pods are left, want %d and %d", r.Connections(), len(r.pods), connections, pods)
			}
		}
		state(DefaultPingInterval+time.Millisecond, 1, 1)
		state(DefaultIdleTimeout-3*time.Second, 1, 1)
		state(DefaultIdleTimeout/sweepsPerTimeout+2*time.Second, 0, 1)
		state(DefaultPodTimeout, 0, 0)
		if got := n.pings.Load(); got > 30 {
			t.Errorf("%d pings, but no request is in flight", got)
		}
		if _, err := direct(t.Context(), r, to, post()); err != nil {
			t.Error(err)
		}
		state(DefaultPodTimeout+DefaultIdleTimeout, 0, 0)
	})
}

// TestRefusedPing: an owner that shuts down refuses connections while it answers its last calls.
func TestRefusedPing(t *testing.T) {
	inMemory(t, func(t *testing.T, r *Relay, to sessionid.Owner, n *network) {
		time.AfterFunc(time.Second, func() { n.refuse.Store(true) })
		if _, err := direct(t.Context(), r, to, &Request{Method: "POST", Target: "/wait", Host: "x"}); err != nil {
			t.Error(err)
		}
		if got := r.Dials(Refused); got < 29 {
			t.Errorf("%d refused pings, want one every 2 s", got)
		}
	})
}

// TestBusyPod: a pod that is reachable but too busy for pings keeps its calls, up to a limit.
func TestBusyPod(t *testing.T) {
	inMemory(t, func(t *testing.T, r *Relay, to sessionid.Owner, n *network) {
		busyAt := func(d time.Duration, busy bool) {
			time.AfterFunc(d, func() { n.busy.Store(busy) })
		}
		busyAt(time.Second, true) // before there is a connection for pings
		busyAt(DefaultPingPatience, false)
		if _, err := direct(t.Context(), r, to, &Request{Method: "POST", Target: "/wait", Host: "x"}); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * DefaultPingInterval) // until pings have ended
		begin := time.Now()
		busyAt(time.Second, true)
		_, err := direct(t.Context(), r, to, &Request{Method: "POST", Target: "/wait", Host: "x"})
		if took := time.Since(begin); !errors.Is(err, ErrLost) || took < DefaultPingPatience || took > DefaultPingPatience+DefaultPingInterval+DefaultPingTimeout {
			t.Errorf("after %v: error is %v, want ErrLost", took, err)
		}
	})
}

// TestAcknowledgedPings: a pod whose kernel acknowledges pings is there, however long the program takes for the answer.
func TestAcknowledgedPings(t *testing.T) {
	var pings atomic.Int32
	enough := make(chan struct{})
	o := startOwner(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == PingPath && pings.Add(1) == 3 {
			close(enough)
		}
		select {
		case <-enough:
		case <-r.Context().Done():
		}
	})
	limits := patient(Limits{})
	limits.PingInterval, limits.PingTimeout = time.Millisecond, 200*time.Millisecond
	r := New(Options{Handshake: handshake, Limits: limits})
	t.Cleanup(r.Close)
	if _, err := direct(t.Context(), r, o.Owner, post()); err != nil {
		t.Error(err)
	}
}

// TestUnusedConnection: a connection whose client left before it had a request is good for another one, but not as
// long as one that had a request: the owner waits for the first one only for a short time.
func TestUnusedConnection(t *testing.T) {
	for _, age := range []time.Duration{0, DefaultUnusedTimeout - 1, DefaultUnusedTimeout, listener.HeaderTimeout - 1, listener.HeaderTimeout, time.Minute} {
		t.Run(age.String(), func(t *testing.T) {
			inMemory(t, func(t *testing.T, r *Relay, to sessionid.Owner, n *network) {
				p := enters(t, r, to, false, "")
				c, err := r.take(t.Context(), p, post(), false)
				if err != nil {
					t.Fatal(err)
				}
				r.put(p, c)
				r.leave(p, false, "")
				time.Sleep(age)
				if _, err := direct(t.Context(), r, to, post()); err != nil {
					t.Error(err)
				}
				if got := n.dials.Load() == 1; got != (age < DefaultUnusedTimeout) {
					t.Errorf("%d connections", n.dials.Load())
				}
			})
		})
	}
}

func TestCloseLeavesRequestsInFlight(t *testing.T) {
	inMemory(t, func(t *testing.T, r *Relay, to sessionid.Owner, _ *network) {
		time.AfterFunc(10*time.Second, r.Close)
		if _, err := direct(t.Context(), r, to, &Request{Method: "POST", Target: "/wait", Host: "x"}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if r.Connections() != 0 || len(r.pods) != 0 {
			t.Errorf("%d connections and %d pods are left", r.Connections(), len(r.pods))
		}
	})
}

func TestBlackHole(t *testing.T) {
	inMemory(t, func(t *testing.T, r *Relay, to sessionid.Owner, n *network) {
		n.silent.Store(true)
		begin := time.Now()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				_, err := direct(t.Context(), r, to, post())
				wantDialError(t, err, Unreachable)
			})
		}
		all.Wait()
		if took := time.Since(begin); took != DefaultDialTimeout || n.dials.Load() != 1 {
			t.Errorf("%d attempts took %v, want 1 of %v", n.dials.Load(), took, DefaultDialTimeout)
		}
	})
}

// A request that has less time than a dial takes does not wait longer, and says nothing of the pod. The dial goes on for the
// others.
func TestConnectTimeout(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, r *Relay, to sessionid.Owner, n *network) {
		n.silent.Store(true)
		begin := time.Now()
		var all sync.WaitGroup
		for timeout, want := range map[time.Duration]Outcome{0: Unreachable, 600 * time.Millisecond: Late, time.Minute: Unreachable} {
			all.Go(func() {
				request := post()
				request.ConnectTimeout = timeout
				_, err := direct(t.Context(), r, to, request)
				wantDialError(t, err, want)
				waits := DefaultDialTimeout
				if want == Late {
					waits = timeout
				}
				if took := time.Since(begin); took != waits {
					t.Errorf("with %s: %s", timeout, took)
				}
			})
		}
		all.Wait()
		if dials := n.dials.Load(); dials != 1 {
			t.Errorf("%d dials", dials)
		}
		n.silent.Store(false)
		request := post()
		request.ConnectTimeout = time.Nanosecond
		if _, err := direct(t.Context(), r, to, post()); err != nil {
			t.Fatal(err)
		}
		if _, err := direct(t.Context(), r, to, request); err != nil {
			t.Errorf("with a connection: %v", err)
		}
	})
}
