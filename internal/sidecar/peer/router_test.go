package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/trust"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

type admitAll struct{}

func (admitAll) Admit(http.ResponseWriter, *http.Request, string) bool { return true }

// lonely is an adapter whose sessions are all at one other pod, to which every connection fails.
type lonely struct {
	door *edge.Door
	fail func() (dial, handshake error)
	slow time.Duration // that each attempt takes
}

// there is that pod.
var there = sessionid.Owner{UID: [16]byte{2}, Address: netip.MustParseAddrPort("192.0.2.2:16272")}

func newLonely(t *testing.T, options Options) *lonely {
	t.Helper()
	l := &lonely{}
	options.Self = sessionid.Owner{UID: [16]byte{1}, Address: netip.MustParseAddrPort("192.0.2.1:16272")}
	options.Parse = func(id string) (owner sessionid.Owner, returns bool, err error) {
		return there, id == "kept", nil
	}
	if options.Standing == nil {
		options.Standing = roster.New().Standing
	}
	options.Relay = relay.New(relay.Options{
		Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			select {
			case <-time.After(l.slow):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if err, _ := l.fail(); err != nil {
				return nil, err
			}
			near, far := net.Pipe()
			return near, far.Close()
		},
		Handshake: func(context.Context, net.Conn, [16]byte) (*tls.Conn, error) {
			_, err := l.fail()
			return nil, err
		},
	})
	t.Cleanup(options.Relay.Close)
	router := New(options)
	t.Cleanup(router.Drain)
	l.door = edge.New(edge.Options{
		Admit: admitAll{}, Budget: edge.NewMemory(edge.BodyLimits{BodyBytes: 1 << 20}, budget.New(1<<20, 1)), Locate: router,
		Routes: map[string]edge.Route{"/mcp": {
			Missing: func(r *edge.Request) string { return r.Head("Mcp-Session-Id") },
			Serve:   func(w http.ResponseWriter, _ *edge.Request) { w.WriteHeader(http.StatusNotFound) },
		}},
	})
	return l
}

const (
	pingMessage       = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	initializeMessage = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
)

func (l *lonely) post(t *testing.T, body string) *httptest.ResponseRecorder {
	t.Helper()
	return l.postTo(t, "there", body)
}

// postTo posts to a session, or to none.
func (l *lonely) postTo(t *testing.T, session, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	w := httptest.NewRecorder()
	l.door.ServeHTTP(w, r)
	return w
}

// A session is over when its pod does not answer for a while. A pod that can be reached and takes no connection
// has much longer, and a limit of this pod says nothing of the other.
func TestWhatCountsAsSilence(t *testing.T) {
	t.Parallel()
	closed, silence := errors.New("closed"), syscall.EHOSTUNREACH
	for name, test := range map[string]struct {
		session string
		fail    func(since time.Duration) (dial, handshake error)
		over    time.Duration // 0 is never
	}{
		"silent":              {"there", func(time.Duration) (error, error) { return silence, nil }, deadAfter},
		"resets connections":  {"there", func(time.Duration) (error, error) { return syscall.ECONNRESET, nil }, stuckAfter},
		"closes connections":  {"there", func(time.Duration) (error, error) { return nil, closed }, stuckAfter},
		"no descriptors here": {"there", func(time.Duration) (error, error) { return syscall.EMFILE, nil }, 0},
		"no ports here":       {"there", func(time.Duration) (error, error) { return syscall.EADDRNOTAVAIL, nil }, 0},
		"silent, with a sign of life": {"there", func(since time.Duration) (error, error) {
			if since > deadAfter/2 && since < deadAfter/2+time.Second {
				return nil, closed
			}
			return silence, nil
		}, deadAfter + deadAfter/2},
		"refuses, and the session would come back": {"kept", func(time.Duration) (error, error) { return syscall.ECONNREFUSED, nil }, stuckAfter},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, begin := newLonely(t, Options{}), time.Now()
				l.fail = func() (dial, handshake error) { return test.fail(time.Since(begin)) }
				for {
					w, after := l.postTo(t, test.session, pingMessage), time.Since(begin)
					switch {
					case w.Code == http.StatusNotFound && (test.over == 0 || after < test.over || after > test.over+2*time.Second):
						t.Errorf("over after %s, want %s", after, test.over)
					case w.Code == http.StatusNotFound:
					case w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "":
						t.Errorf("got %d %s", w.Code, w.Body)
					case after < 2*stuckAfter:
						time.Sleep(time.Second)
						continue
					case test.over != 0:
						t.Errorf("not over after %s", after)
					}
					return
				}
			})
		})
	}
}

// A stream whose pod cannot be connected to has no answer: SDKs would take any for the end of the session.
func TestStreamsAreNotRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		dial  error
		after time.Duration
	}{"silent": {syscall.EHOSTUNREACH, streamPatience}, "no descriptors here": {syscall.EMFILE, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, begin := newLonely(t, Options{}), time.Now()
				l.fail = func() (dial, handshake error) { return test.dial, nil }
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/mcp", http.NoBody)
				r.Header.Set("Mcp-Session-Id", "there")
				w := httptest.NewRecorder()
				defer func() {
					if ended, _ := recover().(error); !errors.Is(ended, http.ErrAbortHandler) || time.Since(begin) != test.after {
						t.Errorf("%v after %s: %d %s", ended, time.Since(begin), w.Code, w.Body)
					}
				}()
				l.door.ServeHTTP(w, r)
			})
		})
	}
}

// An initialize does not wait for a pod that may have the session that it names. It opens a new one here.
func TestInitializeDoesNotWait(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string][2]error{
		"silent": {syscall.EHOSTUNREACH, nil}, "refuses": {syscall.ECONNREFUSED, nil}, "closes connections": {nil, errors.New("closed")}, "no descriptors here": {syscall.EMFILE, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, begin := newLonely(t, Options{}), time.Now()
				l.fail = func() (dial, handshake error) { return fail[0], fail[1] }
				w := l.post(t, " "+initializeMessage+"\n")
				if w.Code != http.StatusNotFound || time.Since(begin) != 0 { // the answer of this pod
					t.Errorf("after %s: %d %s", time.Since(begin), w.Code, w.Body)
				}
				if w = l.post(t, strings.Replace(initializeMessage, `"initialize"`, `"ping","x":"initialize"`, 1)); name != "refuses" && w.Code != http.StatusServiceUnavailable {
					t.Errorf("another request: %d %s", w.Code, w.Body)
				}
			})
		})
	}
}

// A request waits as long as its patience, however long each attempt to connect takes. An initialize waits for one attempt,
// and the next one for none.
func TestSlowAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLonely(t, Options{})
		l.fail = func() (dial, handshake error) { return syscall.EHOSTUNREACH, nil }
		l.slow = relay.DefaultDialTimeout - 100*time.Millisecond
		for _, step := range []struct {
			body   string
			status int
			after  time.Duration
		}{
			{initializeMessage, http.StatusNotFound, l.slow}, // the answer of this pod
			{initializeMessage, http.StatusNotFound, 0},
			{pingMessage, http.StatusServiceUnavailable, patience},
		} {
			begin := time.Now()
			if w := l.post(t, step.body); w.Code != step.status || time.Since(begin).Round(time.Millisecond) != step.after {
				t.Errorf("%d after %s: %s", w.Code, time.Since(begin), w.Body)
			}
		}
	})
}

// The log tells when a pod stops to answer and when its sessions are over, with its address, and not for each request.
func TestVerdictsAreLogged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		dial, handshake error
		most            int // lines
		want            []string
	}{
		"silent":   {syscall.EHOSTUNREACH, nil, 4, []string{saysSilent, saysDead}},
		"stuck":    {nil, errors.New("closed"), 15, []string{saysStuck, saysDead}},
		"refuses":  {syscall.ECONNREFUSED, nil, 15, []string{saysDead}},
		"replaced": {nil, trust.ErrStranger, 15, []string{saysReplaced}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var lines []string
				l := newLonely(t, Options{Log: funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})})
				l.fail = func() (dial, handshake error) { return test.dial, test.handshake }
				for begin := time.Now(); time.Since(begin) < stuckAfter+time.Second; time.Sleep(time.Second) {
					if w := l.post(t, pingMessage); w.Code == http.StatusNotFound && len(test.want) > 1 {
						break
					}
				}
				if len(lines) == 0 || len(lines) > test.most {
					t.Fatalf("%d lines", len(lines))
				}
				for i, line := range map[int]string{0: lines[0], len(test.want) - 1: lines[len(lines)-1]} {
					if !strings.Contains(line, `"msg"="`+test.want[i]+`"`) || !strings.Contains(line, `"address"="192.0.2.2:16272"`) {
						t.Errorf("line is %s, want %q", line, test.want[i])
					}
				}
			})
		})
	}
}

// Many pods at a time do not fill the memory.
func TestVerdictsAreBounded(t *testing.T) {
	var v verdicts
	now := time.Now()
	for range 3 {
		told := 0
		for i := range 10 * logPods {
			if _, ok := v.isNew(line{saysDead, [16]byte{byte(i), byte(i >> 8)}}, now); ok {
				told++
			}
		}
		if told != logPods || len(v.lines) != logPods {
			t.Errorf("%d lines, %d remembered", told, len(v.lines))
		}
		now = now.Add(logPause)
	}
}

const statefulCall = `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"requestState":"s","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`

// A request that goes on with a state waits for the pod that gave the state, as one of a session does. If that pod is gone
// for certain, this one answers.
func TestOwnersOfStates(t *testing.T) {
	for name, test := range map[string]struct {
		dial   error
		body   string
		status int // 404 is the answer of this pod
		after  time.Duration
		asked  bool
	}{
		"silent":                        {syscall.EHOSTUNREACH, statefulCall, http.StatusServiceUnavailable, patience, true},
		"refuses":                       {syscall.ECONNREFUSED, statefulCall, http.StatusNotFound, 0, true},
		"a session":                     {nil, pingMessage, http.StatusNotFound, 0, false},
		"a batch":                       {nil, "[" + pingMessage + "]", http.StatusNotFound, 0, false},
		"an answer, which has no owner": {nil, `{"jsonrpc":"2.0","id":1,"result":{"requestState":"s"}}`, http.StatusNotFound, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked := false
				l, begin := newLonely(t, Options{State: func(*edge.Request) (sessionid.Owner, bool) {
					asked = true
					return there, true
				}}), time.Now()
				l.fail = func() (dial, handshake error) { return test.dial, nil }
				w := l.postTo(t, "", test.body)
				if w.Code != test.status || time.Since(begin) != test.after || asked != test.asked {
					t.Errorf("%d after %s: %s; asked: %t", w.Code, time.Since(begin), w.Body, asked)
				}
				if w.Code == http.StatusServiceUnavailable && !strings.Contains(w.Body.String(), `"id":"a"`) {
					t.Errorf("the answer names no request: %s", w.Body)
				}
			})
		})
	}
}

// While the adapter of a pod restarts, sessions that it will have again are not over.
func TestOwnersThatComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, begin := newLonely(t, Options{}), time.Now()
		l.fail = func() (dial, handshake error) { return syscall.ECONNREFUSED, nil }
		for session, want := range map[string]int{"kept": http.StatusServiceUnavailable, "there": http.StatusNotFound} {
			if w := l.postTo(t, session, pingMessage); w.Code != want {
				t.Errorf("%s: %d %s, want %d", session, w.Code, w.Body, want)
			}
		}
		if waited := time.Since(begin); waited != patience {
			t.Errorf("waited for %s", waited)
		}
		if w := l.postTo(t, "kept", initializeMessage); w.Code != http.StatusNotFound { // the answer of this pod
			t.Errorf("initialize: %d %s", w.Code, w.Body)
		}
	})
}
