package proxy

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
	"github.com/slipway-mcp/slipway/test/hang"
)

// keeping is a server with sessions that is as forgetful as the test wants.
type keeping struct {
	id     string       // of every session
	status atomic.Int32 // of answers in a session; 0 is 200
	deaf   bool         // it does not take DELETE
	seen   atomic.Int32 // requests in a session
}

func (k *keeping) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch named := r.Header.Get(headerSession); {
	case named == "":
		w.Header().Set(headerSession, k.id)
	case named != k.id:
		w.WriteHeader(http.StatusNotFound)
		return
	case r.Method == http.MethodDelete && k.deaf:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case k.status.Load() != 0:
		w.WriteHeader(int(k.status.Load()))
		return
	default:
		k.seen.Add(1)
	}
	w.Header().Set("Content-Type", typeJSON)
	_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`))
}

// lives are adapters of one pod, one after the other. The last ones did not get to end anything.
type lives struct {
	*testing.T
	at   *backend
	keys *keys.Keys
}

func newLives(t *testing.T, server http.Handler) *lives {
	t.Helper()
	held, err := keys.New(adapterapi.Keyring{Current: adapterapi.NewKey()}, "")
	if err != nil {
		t.Fatal(err)
	}
	return &lives{t, newBackend(t, server), held}
}

// named are callers with the names in their unverified tokens.
type named struct{}

func (named) Authenticate(r *http.Request) (caller.Caller, *edge.Refusal) {
	return caller.Caller{Principal: caller.Principal(r.Header.Get("X-User")), Authorization: r.Header["Authorization"]}, nil
}

func (l *lives) next(change func(*Options)) *endpoint {
	l.Helper()
	return newEndpoint(l.T, l.at, func(o *Options) {
		o.Keeper, o.Owner = l.keys, sessionid.Owner{UID: [16]byte{1}, Address: netip.MustParseAddrPort("10.0.0.1:16272")}
		if change != nil {
			change(o)
		}
	}, func(o *edge.Options) { o.Authenticate = named{} })
}

func (l *lives) want(status int, what string, e *endpoint, method, id string, headers ...string) {
	l.Helper()
	body := ""
	if method == http.MethodPost {
		body = ping
	}
	response := e.Do(method, body, append([]string{headerSession, id, headerRevision, "2025-11-25"}, headers...)...)
	if text := text(l.T, response); response.StatusCode != status {
		l.Errorf("%s: got %d %s, want %d", what, response.StatusCode, text, status)
	}
}

// A session goes on with the next process of the adapter, under the same id at the server, and counts as the one that it is.
func TestSessionsOutliveTheAdapter(t *testing.T) {
	t.Parallel()
	server := &keeping{id: "theirs"}
	l := newLives(t, server)
	first, second := l.next(nil), l.next(nil)
	id := first.Open()
	const parallel = 8
	var running sync.WaitGroup
	for range parallel {
		running.Go(func() { l.want(http.StatusOK, "a request", second, http.MethodPost, id) })
	}
	running.Wait()
	if n := second.proxy.Sessions.Len(); n != 1 || second.proxy.Sessions.Places.Taken() != 1 || server.seen.Load() != parallel {
		t.Fatalf("%d sessions; the server got %d requests", n, server.seen.Load())
	}
	was, is := first.proxy.Sessions.Find(id).About(), second.proxy.Sessions.Find(id).About()
	if !is.Began.Equal(was.Began.Truncate(time.Millisecond)) || is.Revision != "2025-11-25" {
		t.Errorf("it began at %s, as %s, and was of %s", is.Began, is.Revision, was.Began)
	}
	l.want(http.StatusNotFound, "another pod's", l.next(func(o *Options) { o.Owner.UID[0]++ }), http.MethodPost, id)
	l.want(http.StatusNotFound, "with other keys", newLives(t, server).next(nil), http.MethodPost, id)
	l.want(http.StatusNotFound, "too old", l.next(func(o *Options) { o.MaxLifetime = time.Nanosecond }), http.MethodPost, id)
	l.want(http.StatusNotFound, "altered", second, http.MethodPost, id[:100]+"AA"+id[102:])
	again := second.Open(headerSession, "x")
	if again == id || len(again) > sessionid.LongestID {
		t.Errorf("the ids are %s and %s", id, again)
	}
}

// Only its owner can continue a session, and the server does not see the requests of other callers.
func TestSessionsComeBackToTheirOwner(t *testing.T) {
	t.Parallel()
	server := &keeping{id: "theirs"}
	l := newLives(t, server)
	id := l.next(nil).Open("X-User", "anna")
	unowned := l.next(nil).Open()
	next := l.next(nil)
	for _, other := range []string{"bert", ""} {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			l.want(http.StatusNotFound, method+" of "+other, next, method, id, "X-User", other)
		}
	}
	l.want(http.StatusNotFound, "anna with a session without an owner", next, http.MethodPost, unowned, "X-User", "anna")
	if n := server.seen.Load(); n != 0 || next.proxy.Sessions.Len() != 0 {
		t.Errorf("the server gets %d requests, and there are %d sessions", n, next.proxy.Sessions.Len())
	}
	l.want(http.StatusOK, "anna", next, http.MethodPost, id, "X-User", "anna")
	l.want(http.StatusNotFound, "bert, when it is there", next, http.MethodPost, id, "X-User", "bert")
}

// Tokens that name no owner are alike to the adapter. After a restart it believes none before the server has accepted it.
func TestTokensWithoutNamesAfterARestart(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"refused": http.StatusUnauthorized, "the session is hidden": http.StatusNotFound} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &keeping{id: "theirs"}
			l := newLives(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer hers" {
					w.WriteHeader(status)
					return
				}
				server.ServeHTTP(w, r)
			}))
			hers := []string{"X-User", string(caller.SomeToken), "Authorization", "Bearer hers"}
			other := []string{"X-User", string(caller.SomeToken), "Authorization", "Bearer other"}
			id := l.next(nil).Open(hers...)
			next := l.next(nil)
			l.want(status, "a call of another", next, http.MethodPost, id, other...)
			l.want(http.StatusNotFound, "delete of another", next, http.MethodDelete, id, other...)
			l.want(http.StatusOK, "a call of the owner", next, http.MethodPost, id, hers...)
			l.want(http.StatusNoContent, "delete of the owner", next, http.MethodDelete, id, hers...)
		})
	}
}

// What has ended does not come back, even if the server did not take notice.
func TestEndedSessionsDoNotComeBack(t *testing.T) {
	t.Parallel()
	server := &keeping{id: "theirs", deaf: true}
	l := newLives(t, server)
	first, second := l.next(nil), l.next(nil)
	id := first.Open()
	l.want(http.StatusNoContent, "delete", second, http.MethodDelete, id)
	l.want(http.StatusNotFound, "after delete", second, http.MethodPost, id)
	l.want(http.StatusNoContent, "delete", first, http.MethodDelete, id)
	l.want(http.StatusNotFound, "after delete in its own process", first, http.MethodPost, id)
	other := first.Open()
	l.want(http.StatusOK, "another", second, http.MethodPost, other)
	second.proxy.Sessions.Find(other).End(errForgotten)
	l.want(http.StatusNotFound, "after its end", second, http.MethodPost, other)
}

// The server decides whether it knows the session still. Some say so with 400.
func TestServersForgetSessionsThatComeBack(t *testing.T) {
	t.Parallel()
	for _, status := range []int32{http.StatusNotFound, http.StatusBadRequest} {
		server := &keeping{id: "theirs"}
		l := newLives(t, server)
		id := l.next(nil).Open()
		server.status.Store(status)
		next := l.next(nil)
		l.want(http.StatusNotFound, "forgotten", next, http.MethodPost, id)
		server.status.Store(0)
		l.want(http.StatusNotFound, "and then", next, http.MethodPost, id)
		if next.proxy.Sessions.Len() != 0 {
			t.Error("the session is there")
		}
	}
}

// Sessions that come back take places. Without one, their clients must not take them for ended.
func TestSessionsThatComeBackTakePlaces(t *testing.T) {
	t.Parallel()
	l := newLives(t, &keeping{id: "theirs"})
	first := l.next(nil)
	one, two := first.Open(), first.Open()
	next := l.next(func(o *Options) { o.Sessions = newRegistry(1, time.Hour) })
	l.want(http.StatusOK, "the first", next, http.MethodPost, one)
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		l.want(http.StatusServiceUnavailable, "the second, "+method, next, method, two)
	}
	l.want(http.StatusNoContent, "the first ends", next, http.MethodDelete, one)
	l.want(http.StatusOK, "the second", next, http.MethodPost, two)
}

// A client that sends the id of its session also with initialize gets a new session.
func TestInitializeNamesASessionThatWouldComeBack(t *testing.T) {
	t.Parallel()
	l := newLives(t, &keeping{id: "theirs"})
	id := l.next(nil).Open()
	if again := l.next(nil).Open(front.HeaderSession, id); again == id {
		t.Error("the session is the same")
	}
}

// A server's id that is too long for the adapter's ends with the adapter.
func TestIDsOfServersThatAreLong(t *testing.T) {
	t.Parallel()
	for length, status := range map[int]int{256: http.StatusOK, 257: http.StatusNotFound} {
		l := newLives(t, &keeping{id: strings.Repeat("x", length)})
		first := l.next(nil)
		id := first.Open()
		l.want(http.StatusOK, "at first", first, http.MethodPost, id)
		l.want(status, "with the next process", l.next(nil), http.MethodPost, id)
	}
}

// Requests of one session that come at the same time take one place. With two, they would wait for each other.
func TestSessionsThatComeBackTakeOnePlace(t *testing.T) {
	t.Parallel()
	l := newLives(t, &keeping{id: "theirs"})
	id := l.next(nil).Open()
	next := l.next(func(o *Options) {
		o.Sessions = session.NewRegistry(session.Policy{Max: 1, Patience: hang.Guard, IdleTimeout: time.Hour, MaxLifetime: time.Hour})
	})
	taken := next.Open()
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() { l.want(http.StatusOK, "a request", next, http.MethodPost, id) })
	}
	l.want(http.StatusNoContent, "the one that has the place", next, http.MethodDelete, taken)
	running.Wait()
}

// Requests of one session for which there is no place wait beside each other, and not one after the other.
func TestSessionsThatComeBackWaitOnce(t *testing.T) {
	t.Parallel()
	const parallel, patience = 8, time.Second
	l := newLives(t, &keeping{id: "theirs"})
	id := l.next(nil).Open()
	next := l.next(func(o *Options) {
		o.Sessions = session.NewRegistry(session.Policy{Max: 1, Patience: patience, IdleTimeout: time.Hour, MaxLifetime: time.Hour})
	})
	next.Open()
	var running sync.WaitGroup
	for range parallel {
		running.Go(func() { l.want(http.StatusServiceUnavailable, "a request", next, http.MethodPost, id) })
	}
	running.Wait()
	if n := next.proxy.Sessions.Places.Refused(); n > parallel/2 { // 1, unless a request comes late on a busy machine
		t.Errorf("%d of %d requests have waited for a place", n, parallel)
	}
}
