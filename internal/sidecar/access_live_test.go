package sidecar

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/document"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/sse"
	"github.com/slipway-mcp/slipway/test/hang"
)

func block(user string) func(*adapterapi.Access) {
	return func(a *adapterapi.Access) {
		a.Blocked = append(a.Blocked, adapterapi.AccessSubject{Kind: adapterapi.SubjectUser, Name: "corp:" + user})
	}
}

// echoForAll has rules that give alice and bob all tools of the server echo.
func echoForAll(a *adapterapi.Access) {
	a.Rules = []adapterapi.AccessRule{{
		Subjects: []adapterapi.AccessSubject{{Kind: adapterapi.SubjectUser, Name: "corp:alice"}, {Kind: adapterapi.SubjectUser, Name: "corp:bob"}},
		Tools:    []string{"*"},
	}}
}

// A rule that is gone counts for the next message of every client, also in a session that is open.
func TestRuleIsRemoved(t *testing.T) {
	t.Parallel()
	for name, backend := range matrixBackends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, nil)
			url := startMatrix(t, g, name)
			open := map[string]speaker{}
			for kind, speak := range speakers {
				if slices.Contains(backend.without, kind) {
					continue
				}
				for _, user := range []string{"alice", "carol"} {
					s := speak(g, url, g.token(user, nil))
					if status := s.open(); status != http.StatusOK {
						t.Fatalf("%s connects: %d", user, status)
					}
					defer s.close()
					open[user+" "+kind] = s
				}
			}
			check := func(when string, want map[string]verdict) {
				for who, s := range open {
					user, _, _ := strings.Cut(who, " ")
					if got := verdictOn(t, s.ask("tools/call", catalog["echo"].params)); got != want[user] {
						t.Errorf("%s, echo is %s for %s, want %s", when, got, who, want[user])
					}
					listed := slices.Contains(names(t, s.ask("tools/list", ""), "tools", "name"), "echo")
					if listed != (want[user] == allowed) {
						t.Errorf("%s, echo is listed for %s: %t", when, who, listed)
					}
				}
			}
			check("at first", map[string]verdict{"alice": allowed, "carol": allowed})
			g.take(func(a *adapterapi.Access) { a.Rules[0].Tools = []string{"count"} })
			check("without the rule", map[string]verdict{"alice": denied, "carol": allowed})
			g.take(func(a *adapterapi.Access) { a.Rules[0].Tools = []string{"echo"} })
			check("with the rule again", map[string]verdict{"alice": allowed, "carol": allowed})
		})
	}
}

// listening is a stream that only listens, in the session of a client if there is one.
type listening struct {
	t        *testing.T
	response *http.Response
	events   *bufio.Reader
	session  *sessionSpeaker
}

// listens opens a stream of every kind that there is.
var listens = map[string]func(g *guard, url, token string) *listening{
	"GET": func(g *guard, url, token string) *listening {
		s := &sessionSpeaker{guard: g, url: url, token: token, revision: "2025-11-25"}
		if status := s.open(); status != http.StatusOK {
			g.t.Fatalf("initialize: %d", status)
		}
		return newListening(g, s, g.request(http.MethodGet, url, token, "", s.headers()...))
	},
	"SSE": func(g *guard, url, token string) *listening {
		return newListening(g, nil, g.request(http.MethodGet, strings.TrimSuffix(url, Path)+sse.StreamPath, token, ""))
	},
	"subscription": func(g *guard, url, token string) *listening {
		return newListening(g, nil, g.request(http.MethodPost, url, token, requestText("subscriptions/listen", `"notifications":{"toolsListChanged":true},`+modernMeta),
			"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen"))
	},
}

func newListening(g *guard, s *sessionSpeaker, response *http.Response) *listening {
	g.t.Helper()
	g.t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		g.t.Fatalf("the stream does not open: %s", response.Status)
	}
	l := &listening{g.t, response, bufio.NewReader(response.Body), s}
	if _, err := l.events.ReadString('\n'); err != nil {
		g.t.Fatalf("the stream does not begin: %v", err)
	}
	return l
}

// ended waits for the end of the stream.
func (l *listening) ended() {
	l.t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(io.Discard, l.events) // it may break off
	}()
	select {
	case <-over:
	case <-time.After(hang.Guard):
		l.t.Error("the stream does not end")
		_ = l.response.Body.Close()
		<-over
	}
}

// isGone checks that the session cannot be used any more, whatever the reason is.
func (s *sessionSpeaker) isGone() {
	s.guard.t.Helper()
	if got := s.ask("ping", ""); got.status != http.StatusForbidden && got.status != http.StatusNotFound {
		s.guard.t.Errorf("the session is there: %d %s", got.status, got.message)
	}
}

// hears checks that the stream still gets messages. While another call is in flight, the server's notification
// belongs to none.
func (l *listening) hears() {
	l.t.Helper()
	s := l.session
	asking := s.guard.request(http.MethodPost, s.url, s.token, `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"ask","arguments":{"text":"wait"}}}`, s.headers()...)
	defer func() { _ = asking.Body.Close() }()
	s.ask("tools/call", `"name":"changed","arguments":{}`)
	if _, err := l.events.ReadString('}'); err != nil {
		l.t.Errorf("the stream gets nothing: %v", err)
	}
}

// A user that gets blocked loses sessions and streams. Other users are not affected.
func TestBlockedUsersLoseSessionsAndStreams(t *testing.T) {
	t.Parallel()
	starts := map[string]func(*testing.T, *guard) (*Adapter, string){
		"a process for each session": func(t *testing.T, g *guard) (*Adapter, string) {
			return startAdapter(t, g.guarded(func(c *config.Config) { c.LegacySSE = true }))
		},
		"one process for all": func(t *testing.T, g *guard) (*Adapter, string) {
			return startAdapter(t, g.guarded(func(c *config.Config) { c.Shared, c.LegacySSE = true, true }))
		},
		"an HTTP server": func(t *testing.T, g *guard) (*Adapter, string) {
			at := serveMatrix(t, "legacy")
			return startAdapter(t, g.guarded(func(c *config.Config) { c.Transport, c.UpstreamURL = config.StreamableHTTP, at }))
		},
	}
	for backend, start := range starts {
		for kind, listen := range listens {
			if backend == "an HTTP server" && kind == "SSE" {
				continue // is not served
			}
			t.Run(backend+"/"+kind, func(t *testing.T) {
				t.Parallel()
				g := newGuard(t, echoForAll)
				adapter, url := start(t, g)
				alices := listen(g, url, g.token("alice", nil))
				bobs := listen(g, url, g.token("bob", nil))
				before := adapter.env.Sessions.Len()
				g.take(block("alice"))
				alices.ended()
				if before == 2 {
					gomega.NewWithT(t).Eventually(adapter.env.Sessions.Len).WithTimeout(hang.Guard).Should(gomega.Equal(1))
				}
				if got := g.ask(http.MethodPost, url, g.token("alice", nil), initializeMessage); got.status != http.StatusForbidden {
					t.Errorf("alice begins again: %d %s", got.status, got.message)
				}
				if bobs.session != nil {
					alices.session.isGone()
					if backend == "a process for each session" {
						bobs.hears()
					}
					bobs.session.close()
				}
				g.take(block("bob"))
				bobs.ended()
			})
		}
	}
}

// A session that opens while its user is blocked does not stay.
func TestBlockedWhileASessionOpens(t *testing.T) {
	t.Parallel()
	g := newGuard(t, echoForAll)
	opening := make(chan struct{}, 1)
	server := &httpServer{noDiscover: true, initialize: func(w http.ResponseWriter, r *http.Request, id string) {
		if r.Header.Get("X-Late") != "" {
			g.take(block("alice"))
			opening <- struct{}{}
		}
		agreeToInitialize(w, r, id)
	}}
	adapter, url := adapterFor(t, server, g.guarded(nil))
	got := g.ask(http.MethodPost, url, g.token("alice", nil), initializeMessage, "X-Late", "yes")
	if len(opening) == 0 {
		t.Fatalf("no session was opened: %d %s", got.status, got.message)
	}
	gomega.NewWithT(t).Eventually(adapter.env.Sessions.Len).WithTimeout(hang.Guard).Should(gomega.Equal(0))
}

// Once tokens are asked for, sessions without one end, and the other way around.
func TestTokensAreTurnedOnAndOff(t *testing.T) {
	t.Parallel()
	g := newGuard(t, func(a *adapterapi.Access) {
		echoForAll(a)
		a.Mode = adapterapi.AccessNone
		a.Rules[0].Subjects = append(a.Rules[0].Subjects, adapterapi.AccessSubject{Kind: adapterapi.SubjectGroup, Name: adapterapi.GroupUnauthenticated})
	})
	adapter, url := startAdapter(t, g.guarded(func(c *config.Config) { c.LegacySSE = true }))
	var anonymous []*listening
	for _, listen := range listens {
		anonymous = append(anonymous, listen(g, url, ""))
	}
	g.take(func(a *adapterapi.Access) { a.Mode = adapterapi.AccessRequired })
	for _, each := range anonymous {
		each.ended()
	}
	gomega.NewWithT(t).Eventually(adapter.env.Sessions.Len).WithTimeout(hang.Guard).Should(gomega.Equal(0))
	if got := g.ask(http.MethodPost, url, "", initializeMessage); got.status != http.StatusUnauthorized {
		t.Errorf("without a token: %d %s", got.status, got.message)
	}
	var named []*listening
	for _, listen := range listens {
		named = append(named, listen(g, url, g.token("alice", nil)))
	}
	g.take(func(a *adapterapi.Access) { a.Mode = adapterapi.AccessNone })
	for _, each := range named {
		each.ended()
	}
	if got := g.ask(http.MethodPost, url, "", initializeMessage); got.status != http.StatusOK {
		t.Errorf("without a token: %d %s", got.status, got.message)
	}
}

// The adapter ignores a document that is older, or that is not signed with its key.
func TestDocumentsThatDoNotCount(t *testing.T) {
	t.Parallel()
	g := newGuard(t, echoForAll)
	_, url := startAdapter(t, g.guarded(nil))
	s := &sessionSpeaker{guard: g, url: url, token: g.token("alice", nil), revision: "2025-11-25"}
	if status := s.open(); status != http.StatusOK {
		t.Fatalf("alice connects: %d", status)
	}
	g.take(nil) // so that there is an older generation
	now := g.document.Generation
	block("alice")(&g.document)
	g.document.Generation = now - 1
	older := g.sign(testKey)
	g.document.Generation = now + 1
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"an older generation": {older, document.ErrOlder},
		"another key":         {g.sign(adapterapi.NewKey()), adapterapi.ErrAccessUnsigned},
		"changed":             {strings.Replace(g.sign(testKey), "corp:bob", "corp:eve", 1), adapterapi.ErrAccessUnsigned},
		"cut off":             {g.sign(testKey)[:100], nil},
		"empty":               {"", nil},
	} {
		if err := g.gate.Take([]byte(test.text)); err == nil || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if got := s.ask("tools/call", `"name":"echo","arguments":{"text":"x"}`); got.status != http.StatusOK {
			t.Errorf("%s: alice calls: %d %s", name, got.status, got.message)
		}
	}
	g.take(nil)
	s.isGone()
}

// An adapter that needs a document and has none refuses all clients, and is not ready.
func TestNoDocument(t *testing.T) {
	t.Parallel()
	g := newGuard(t, echoForAll)
	g.gate = access.New(access.Options{Ring: func() adapterapi.Keyring { return adapterapi.Keyring{Current: testKey} }, Required: true, Log: logr.Discard()})
	adapter, url := startAdapter(t, g.guarded(func(c *config.Config) { c.LegacySSE = true }))
	ready := func() int {
		w := httptest.NewRecorder()
		adapter.admin.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, adapterapi.PathReady, nil))
		return w.Code
	}
	gomega.NewWithT(t).Eventually(func() bool {
		state, _ := adapter.env.Keeper.State()
		return state.Ready
	}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
	for _, token := range []string{"", g.token("alice", nil)} {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			got := g.ask(method, url, token, initializeMessage)
			if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" || got.header.Get("WWW-Authenticate") != "" || !strings.Contains(got.message, "-32603") {
				t.Errorf("%s: %d %s %v", method, got.status, got.message, got.header)
			}
		}
	}
	if got := ready(); got != http.StatusServiceUnavailable {
		t.Errorf("ready without a document: %d", got)
	}
	g.take(nil)
	if got := g.ask(http.MethodPost, url, g.token("alice", nil), initializeMessage); got.status != http.StatusOK {
		t.Errorf("with a document: %d %s", got.status, got.message)
	}
	if got := ready(); got != http.StatusOK {
		t.Errorf("ready with a document: %d", got)
	}
}

// A stream that only listens ends some time after its token has expired. A call in flight finishes.
func TestStreamsEndWithTheirTokens(t *testing.T) {
	t.Parallel()
	g := newGuard(t, echoForAll)
	_, url := startAdapter(t, g.guarded(func(c *config.Config) { c.LegacySSE = true }))
	s := &sessionSpeaker{guard: g, url: url, token: g.token("alice", nil), revision: "2025-11-25"}
	if status := s.open(); status != http.StatusOK {
		t.Fatalf("alice connects: %d", status)
	}
	expiring := g.expiring("alice", 4*time.Second)
	asking := g.request(http.MethodPost, url, expiring, callOf(`"name":"ask","arguments":{"text":"still there?"}`), s.headers()...)
	defer func() { _ = asking.Body.Close() }()
	streams := []*listening{newListening(g, s, g.request(http.MethodGet, url, expiring, "", s.headers()...))}
	for _, kind := range []string{"SSE", "subscription"} {
		streams = append(streams, listens[kind](g, url, expiring))
	}
	for _, each := range streams {
		each.ended()
	}
	if got := g.ask(http.MethodPost, url, expiring, requestText("ping", ""), s.headers()...); got.status != http.StatusUnauthorized {
		t.Errorf("with the expired token: %d %s", got.status, got.message)
	}
	if got := g.ask(http.MethodPost, url, g.token("alice", nil), `{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`, s.headers()...); got.status != http.StatusAccepted {
		t.Errorf("with a new token: %d %s", got.status, got.message)
	}
	if got := g.nextAnswer(bufio.NewReader(asking.Body)); !strings.Contains(got, `"id":7,"result"`) {
		t.Errorf("the call in flight: %s", got)
	}
}
