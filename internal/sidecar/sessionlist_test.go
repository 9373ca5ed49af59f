package sidecar

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// askSessions makes a request to the admin port with the key for sessions.
func askSessions(t *testing.T, a *Adapter, subject adapterapi.Subject) *httptest.ResponseRecorder {
	t.Helper()
	asked, header := testKey.Sessions().Prove(subject, time.Now())
	r := httptest.NewRequest(subject.Method, subject.Path, http.NoBody)
	r.Header.Set(adapterapi.HeaderProof, header)
	w := httptest.NewRecorder()
	a.admin.Handler.ServeHTTP(w, r)
	if !asked.Opens(w.Header().Get(adapterapi.HeaderAnswer), adapterapi.Answer{Status: w.Code, Body: w.Body.Bytes()}) {
		t.Errorf("%s %s: the answer %d %s is not signed", subject.Method, subject.Path, w.Code, w.Body)
	}
	return w
}

func sessionsOf(t *testing.T, a *Adapter) (list adapterapi.SessionList, text string) {
	t.Helper()
	w := askSessions(t, a, adapterapi.SessionsSubject(testPodUID))
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != http.StatusOK {
		t.Fatalf("list sessions: %d %s: %v", w.Code, w.Body, err)
	}
	return list, w.Body.String()
}

// A user lists the sessions of clients, without the ids that would let the user take one over, and ends
// one. The client reads why, and begins again.
func TestSessionsAreListedAndEnded(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*config.Config){
		"a process each":   nil,
		"a shared process": func(c *config.Config) { c.Shared = true },
		"a proxy": func(c *config.Config) {
			server := countingServer()
			c.Transport = config.StreamableHTTP
			c.UpstreamURL = serveHTTP(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapter, url := startAdapter(t, change)
			var clients []*client
			for range 2 {
				c, err := newClient(t.Context(), url)
				if err != nil {
					t.Fatal(err)
				}
				clients = append(clients, c)
			}
			ask := func(c *client, message string) (int, string) {
				t.Helper()
				response, err := c.post(t.Context(), message)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = response.Body.Close() }()
				body, err := io.ReadAll(response.Body)
				if err != nil {
					t.Fatal(err)
				}
				return response.StatusCode, string(body)
			}
			ask(clients[1], `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			ask(clients[1], `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
			ask(clients[1], `{"jsonrpc":"2.0","id":3,"method":"ping"}`)
			list, text := sessionsOf(t, adapter)
			if len(list.Sessions) != 2 {
				t.Fatalf("got %s", text)
			}
			for i, requests := range []uint64{1, 3} { // with initialize, and without notifications
				s := list.Sessions[i]
				if s.Number == "" || s.Client != "c" || s.ClientVersion != "1" || s.Revision != "2025-11-25" || s.Requests != requests || s.InFlight != 0 ||
					s.AgeSeconds <= 0 || s.IdleSeconds < 0 || s.IdleSeconds > s.AgeSeconds {
					t.Errorf("session %d, want %d requests: %+v", i, requests, s)
				}
			}
			if strings.Contains(text, clients[0].session) || strings.Contains(text, clients[1].session) {
				t.Errorf("an id is told: %s", text)
			}

			first := list.Sessions[0].Number
			if w := askSessions(t, adapter, adapterapi.SessionEndSubject(testPodUID, first)); w.Code != http.StatusNoContent {
				t.Fatalf("end session %s: %d %s", first, w.Code, w.Body)
			}
			if w := askSessions(t, adapter, adapterapi.SessionEndSubject(testPodUID, first)); w.Code != http.StatusNotFound {
				t.Errorf("end session %s again: %d %s", first, w.Code, w.Body)
			}
			if left, text := sessionsOf(t, adapter); len(left.Sessions) != 1 || left.Sessions[0].Number != list.Sessions[1].Number {
				t.Errorf("left: %s", text)
			}
			if status, body := ask(clients[0], `{"jsonrpc":"2.0","id":4,"method":"ping"}`); status != http.StatusNotFound || !strings.Contains(body, "a user of the cluster ended the session") {
				t.Errorf("the client whose session has ended reads %d %s", status, body)
			}
			if status, body := ask(clients[1], `{"jsonrpc":"2.0","id":4,"method":"ping"}`); status != http.StatusOK {
				t.Errorf("the other client reads %d %s", status, body)
			}
		})
	}
}

// Clients of 2024-11-05 connect before they say who they are.
func TestSessionsOfSSEAreListed(t *testing.T) {
	t.Parallel()
	adapter, url := startAdapter(t, func(c *config.Config) { c.LegacySSE = true })
	client, err := mcp.NewClient(&mcp.Implementation{Name: "old", Version: "7"}, nil).
		Connect(t.Context(), &mcp.SSEClientTransport{Endpoint: strings.TrimSuffix(url, Path) + "/sse"}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-06-18"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if _, err := client.ListTools(t.Context(), nil); err != nil { // the adapter knows who it is before it takes this
		t.Fatal(err)
	}
	if list, text := sessionsOf(t, adapter); len(list.Sessions) != 1 || list.Sessions[0].Client != "old" || list.Sessions[0].ClientVersion != "7" || list.Sessions[0].Requests != 2 {
		t.Errorf("got %s", text)
	}
}

// The manager's probe is no client, so users neither see nor end its session.
func TestProbeIsNotListed(t *testing.T) {
	t.Parallel()
	adapter, url := startAdapter(t, nil)
	c := &client{url: url, http: &http.Client{}, headers: map[string]string{adapterapi.HeaderProbe: proofOf(testKey, testPodUID, time.Now())}}
	if err := c.initialize(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer c.http.CloseIdleConnections()
	all := adapter.env.Sessions.All()
	if list, text := sessionsOf(t, adapter); len(list.Sessions) != 0 || len(all) != 1 {
		t.Errorf("got %s of %d sessions", text, len(all))
	}
	if w := askSessions(t, adapter, adapterapi.SessionEndSubject(testPodUID, all[0].About().Number)); w.Code != http.StatusNotFound {
		t.Errorf("end the probe's session: %d %s", w.Code, w.Body)
	}
}

// The key for sessions opens the list of sessions, and nothing else.
func TestSessionsKeyOpensNothingElse(t *testing.T) {
	t.Parallel()
	adapter, url := startAdapter(t, nil)
	derived := testKey.Sessions()
	asKey, err := adapterapi.ParseKey(derived.Encode()) // one who takes it for a key of the server
	if err != nil {
		t.Fatal(err)
	}
	other := adapterapi.NewKey().Sessions()
	prove := map[string]func(adapterapi.Subject) string{
		"as it is": func(s adapterapi.Subject) string { _, header := derived.Prove(s, time.Now()); return header },
		"as a key": func(s adapterapi.Subject) string {
			_, header := adapterapi.NewProof(asKey, s, time.Now())
			return header
		},
	}
	refused := func(what string, subject adapterapi.Subject, path, header string) {
		t.Helper()
		r := httptest.NewRequest(subject.Method, path, http.NoBody)
		r.Header.Set(adapterapi.HeaderProof, header)
		w := httptest.NewRecorder()
		adapter.admin.Handler.ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized {
			t.Errorf("%s: %s %s: %d %s", what, subject.Method, path, w.Code, w.Body)
		}
	}
	for name, prove := range prove {
		for _, subject := range []adapterapi.Subject{adapterapi.CatalogSubject(testPodUID), adapterapi.SettingsSubject(testPodUID)} {
			refused(name, subject, subject.Path, prove(subject))
		}
		r := httptest.NewRequest(http.MethodPost, url, http.NoBody)
		r.Header.Set(adapterapi.HeaderProbe, prove(adapterapi.ProbeSubject(testPodUID)))
		if adapter.env.Keys.IsProbe(r) {
			t.Errorf("%s: the client port takes its holder for the manager", name)
		}
	}
	list, end := adapterapi.SessionsSubject(testPodUID), adapterapi.SessionEndSubject(testPodUID, "1")
	refused("as a key", list, list.Path, prove["as a key"](list))
	refused("the proof for the list", end, end.Path, prove["as it is"](list))
	refused("the proof for another session", end, adapterapi.SessionPath("2"), prove["as it is"](end))
	refused("the proof for another pod", list, list.Path, prove["as it is"](adapterapi.SessionsSubject("another")))
	_, foreign := other.Prove(list, time.Now())
	refused("the key of another server", list, list.Path, foreign)
	_, late := derived.Prove(list, time.Now().Add(-time.Hour))
	refused("an old proof", list, list.Path, late)
	refused("no proof", list, list.Path, "")
}

// A key is not dropped that sessions of an HTTP server may have which come back after a restart of the adapter.
func TestSessionsMayComeBack(t *testing.T) {
	for name, test := range map[string]struct {
		transport config.Transport
		want      int
	}{"streamable-http": {config.StreamableHTTP, 1}, "sse": {config.SSE, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := config.Defaults()
				cfg.Transport, cfg.UpstreamURL, cfg.Keys = test.transport, &url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: "/mcp"}, newKeys(t)
				a := New(nil, cfg)
				time.Sleep(cfg.IdleTimeout - time.Second)
				if got := a.sessionIDs(); len(got) != test.want {
					t.Errorf("%q, want %d", got, test.want)
				}
				time.Sleep(time.Second)
				if got := a.sessionIDs(); len(got) != 0 {
					t.Errorf("after the idle time-out: %q", got)
				}
			})
		})
	}
}
