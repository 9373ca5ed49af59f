package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/audit"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
	"github.com/slipway-mcp/slipway/test/authserver"
)

const guardedResource = "https://echo.example.com/mcp"

// written is what an audit log writes to. Writes wait while stuck is locked.
type written struct {
	began chan struct{} // has room for one: a write has begun
	stuck sync.Mutex
	mu    sync.Mutex
	text  bytes.Buffer
}

func (w *written) Write(text []byte) (int, error) {
	select {
	case w.began <- struct{}{}:
	default:
	}
	w.stuck.Lock()
	defer w.stuck.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(text)
}

// house is a Door with a Gate behind it, and what a front end gets to see.
type house struct {
	t      *testing.T
	corp   *authserver.Server
	gate   *access.Gate
	audit  *Auditor
	lines  *written
	door   *Door
	served func(r *Request) // by the front end; may be nil
	seen   []caller.Caller
}

// newHouse lets bob call the tool search, and with a scope more create_issue. It blocks mallory.
func newHouse(t *testing.T, changes ...func(*adapterapi.Access)) *house {
	t.Helper()
	h := &house{t: t, corp: authserver.Start(t, authserver.Options{Algorithms: []jose.SignatureAlgorithm{jose.ES256}}), lines: &written{began: make(chan struct{}, 1)}}
	h.gate = access.New(access.Options{Required: true})
	log := audit.New(h.lines, nil)
	t.Cleanup(func() { _ = log.Close(context.Background()) })
	h.audit = &Auditor{Gate: h.gate, Log: log}
	h.take(changes...)
	guarded := &Guarded{Gate: h.gate, IsProbe: func(r *http.Request) bool { return r.Header.Get("Slipway-Probe") == "true" }, Audit: h.audit}
	hosts := &origin.Policy{}
	serve := func(w http.ResponseWriter, r *Request) {
		h.seen = append(h.seen, r.Caller)
		if h.served != nil {
			h.served(r)
		}
		w.WriteHeader(http.StatusNoContent)
	}
	h.door = New(Options{
		Admit: &Origins{Policy: func() *origin.Policy { return hosts }}, Authenticate: guarded, Authorize: guarded, Audit: h.audit, Budget: bodies(BodyLimits{BodyBytes: 1 << 20}),
		Routes: map[string]Route{"/mcp": {Serve: serve}, "/public": {Serve: serve, Public: true}},
	})
	return h
}

func (h *house) take(changes ...func(*adapterapi.Access)) {
	h.t.Helper()
	var keys []json.RawMessage
	for _, key := range h.corp.Keys().Keys {
		text, err := key.MarshalJSON()
		if err != nil {
			h.t.Fatal(err)
		}
		keys = append(keys, text)
	}
	document := adapterapi.Access{
		Version: adapterapi.AccessVersion, Generation: 1, Server: adapterapi.AccessServer{Namespace: "demo", Name: "echo"}, Mode: adapterapi.AccessRequired,
		Resources: []string{guardedResource},
		Issuers: []adapterapi.AccessIssuer{{
			Name: "corp", Issuer: h.corp.Issuer, Audiences: []string{guardedResource}, MaxLifetimeSeconds: 3600, Claims: adapterapi.AccessClaims{User: "sub"}, Keys: keys,
		}},
		Rules: []adapterapi.AccessRule{
			{Subjects: []adapterapi.AccessSubject{{Kind: adapterapi.SubjectUser, Name: "corp:bob"}}, Tools: []string{"search"}, Prompts: []string{"*"}},
			{Subjects: []adapterapi.AccessSubject{{Kind: adapterapi.SubjectUser, Name: "corp:bob"}}, Tools: []string{"create_issue"}, Scopes: []string{"issues:write"}},
		},
		Blocked: []adapterapi.AccessSubject{{Kind: adapterapi.SubjectUser, Name: "corp:mallory"}},
		Audit:   adapterapi.AccessAudit{Level: adapterapi.AuditMetadata, WhenFull: adapterapi.AuditDrop},
	}
	for _, change := range changes {
		change(&document)
	}
	text, err := json.Marshal(document)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.gate.Take(text); err != nil {
		h.t.Fatal(err)
	}
}

// as returns the header of a user. It is empty without a user.
func (h *house) as(user string) string {
	if user == "" {
		return ""
	}
	return "Bearer " + h.corp.Mint(map[string]any{"sub": user, "aud": guardedResource})
}

// ask sends a request. Its body is not read if it is refused before.
func (h *house) ask(method, path, authorization, body string, headers ...string) (w *httptest.ResponseRecorder, unread int) {
	h.t.Helper()
	reader := strings.NewReader(body)
	r := httptest.NewRequestWithContext(h.t.Context(), method, path, reader)
	r.Header.Set("Content-Type", front.TypeJSON)
	r.Header.Set("User-Agent", "tester/1")
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w = httptest.NewRecorder()
	h.door.ServeHTTP(w, r)
	return w, reader.Len()
}

func message(method, params string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":` + params + `}`
}

var callSearch, callDelete = message("tools/call", `{"name":"search"}`), message("tools/call", `{"name":"delete"}`)

func TestGuarded(t *testing.T) {
	const noToken = `{"jsonrpc":"2.0","error":{"code":401,"message":"this server needs a token: send it in the header Authorization, as Bearer"}}`
	forbidden := func(text string) string {
		return `{"jsonrpc":"2.0","id":7,"error":{"code":403,"message":"` + text + `"}}`
	}
	noRule := forbidden(`no rule of this server allows you to call the tool \"delete\"`)
	tests := map[string]struct {
		user, method, path, body string
		probe                    bool
		status                   int
		challenge, want          string
	}{
		"no token":              {body: callSearch, status: 401, challenge: "Bearer", want: noToken},
		"no token, GET":         {method: "GET", status: 401, challenge: "Bearer", want: noToken},
		"no token, DELETE":      {method: "DELETE", status: 401, challenge: "Bearer", want: noToken},
		"no token, public":      {path: "/public", body: callSearch, status: 204},
		"allowed":               {user: "bob", body: callSearch, status: 204},
		"allowed, escaped":      {user: "bob", body: message("tools/call", `{"name":"sea\u0072ch"}`), status: 204},
		"no rule":               {user: "bob", body: callDelete, status: 403, want: noRule},
		"no scope":              {user: "bob", body: message("tools/call", `{"name":"create_issue"}`), status: 403, challenge: `Bearer error="insufficient_scope", scope="issues:write", error_description="the token lacks a scope that this call needs"`, want: forbidden("your token lacks scopes that this needs: issues:write")},
		"no rule at all":        {user: "eve", body: message("ping", `{}`), status: 403, want: forbidden("no rule of this server names you")},
		"no rule at all, GET":   {user: "eve", method: "GET", status: 403, want: strings.Replace(forbidden("no rule of this server names you"), `"id":7,`, ``, 1)},
		"no rule, DELETE":       {user: "eve", method: "DELETE", status: 403, want: strings.Replace(forbidden("no rule of this server names you"), `"id":7,`, ``, 1)},
		"blocked":               {user: "mallory", body: callSearch, status: 403, want: forbidden("this server blocks you")},
		"a batch":               {user: "bob", body: "[" + callSearch + "," + callSearch + "]", status: 204},
		"a batch with one more": {user: "bob", body: "[" + callSearch + "," + callDelete + "]", status: 403, want: strings.Replace(noRule, `"id":7,`, ``, 1)},
		"a list":                {user: "bob", body: message("tools/list", `{}`), status: 204},
		"a stream":              {user: "bob", method: "GET", status: 204},
		"the end of a session":  {user: "bob", method: "DELETE", status: 204},
		"the probe":             {probe: true, body: message("tools/list", `{}`), status: 204},
		"the probe calls":       {probe: true, body: callSearch, status: 403, want: forbidden(`the manager may not send \"tools/call\"`)},
	}
	h := newHouse(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h.t, h.seen = t, nil
			var headers []string
			if test.probe {
				headers = []string{"Slipway-Probe", "true"}
			}
			w, unread := h.ask(orText(test.method, "POST"), orText(test.path, "/mcp"), h.as(test.user), test.body, headers...)
			if w.Code != test.status || w.Header().Get("WWW-Authenticate") != test.challenge || w.Body.String() != test.want {
				t.Errorf("got %d, %s, %s\nwant %d, %s, %s", w.Code, w.Header()["Www-Authenticate"], w.Body, test.status, test.challenge, test.want)
			}
			if len(h.seen) != 0 && test.status != 204 || len(h.seen) == 0 && test.status == 204 {
				t.Errorf("the front end got %d requests", len(h.seen))
			}
			if test.status == 401 && unread != len(test.body) {
				t.Errorf("%d bytes of the body were read before a token was", len(test.body)-unread)
			}
		})
	}
}

func orText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// Front ends get the caller by name, and nothing that it proved itself with.
func TestGuardedCaller(t *testing.T) {
	h := newHouse(t)
	if w, _ := h.ask("POST", "/mcp", h.as("bob"), callSearch, "Traceparent", "00-1-2-01"); w.Code != 204 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	from := h.seen[0]
	if from.Principal != "user corp:bob" || from.Address != "192.0.2.1" || from.Authorization != nil || from.Identity().User != "corp:bob" || from.Probe || from.Trace["Traceparent"][0] != "00-1-2-01" {
		t.Errorf("the caller is %+v", from)
	}
	if again := h.as("bob"); true {
		_, _ = h.ask("POST", "/mcp", again, callSearch)
		if other := h.seen[1]; other.Group() != from.Group() || other.ShareKey() != "user corp:bob" {
			t.Errorf("another token of bob is of group %q, want %q", other.Group(), from.Group())
		}
	}
	// A caller without a verified token cannot have the name of a caller with one.
	h.take(func(a *adapterapi.Access) { a.Mode, a.Rules, a.Blocked = adapterapi.AccessNone, nil, nil })
	token := h.as("bob")
	_, _ = h.ask("POST", "/mcp", token, callSearch)
	if from := h.seen[2]; from.Principal == "user corp:bob" || from.Identity() != nil || cmp.Diff([]string{token}, from.Authorization) != "" {
		t.Errorf("without verification the caller is %+v", from)
	}
}

// Streams that only listen end with the rules. What is under way does not.
func TestGuardedStreams(t *testing.T) {
	onlyEve := func(a *adapterapi.Access) {
		a.Generation = 2
		a.Rules[0].Subjects[0].Name, a.Rules[1].Subjects[0].Name = "corp:eve", "corp:eve"
	}
	tests := map[string]struct {
		method, body string
		ends         bool
	}{
		"GET":                  {"GET", "", true},
		"subscriptions/listen": {"POST", message("subscriptions/listen", `{}`), true},
		"a call":               {"POST", callSearch, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.served = func(r *Request) {
				if err := r.Context().Err(); err != nil {
					t.Errorf("over before it began: %v", err)
				}
				h.take(onlyEve)
				if ended := errors.Is(context.Cause(r.Context()), access.ErrRevoked); ended != test.ends {
					t.Errorf("the rules are others now, and the context has %v", context.Cause(r.Context()))
				}
			}
			if w, _ := h.ask(test.method, "/mcp", h.as("bob"), test.body); w.Code != 204 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
}

// changing is a body that has something happen before its first byte.
type changing struct {
	io.Reader
	before func()
}

func (c *changing) Read(into []byte) (int, error) {
	if c.before != nil {
		c.before()
		c.before = nil
	}
	return c.Reader.Read(into)
}

// A message is judged by the rules of when it has come, and not of when its sender began to send it.
func TestGuardedSlowBodies(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*adapterapi.Access)
		want   int
	}{
		"nothing changes":    {nil, http.StatusNoContent},
		"the rule is gone":   {func(a *adapterapi.Access) { a.Rules = a.Rules[1:] }, http.StatusForbidden},
		"bob is blocked":     {func(a *adapterapi.Access) { a.Blocked[0].Name = "corp:bob" }, http.StatusForbidden},
		"the key is gone":    {func(a *adapterapi.Access) { a.Issuers[0].Keys = nil }, http.StatusServiceUnavailable},
		"auth is turned off": {func(a *adapterapi.Access) { *a = open(a) }, http.StatusNoContent},
		"another rule":       {func(a *adapterapi.Access) { a.Rules[1].Scopes = nil }, http.StatusNoContent},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			body := &changing{strings.NewReader(callSearch), func() {
				if test.change != nil {
					h.take(func(a *adapterapi.Access) { a.Generation = 2 }, test.change)
				}
			}}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", body)
			r.Header.Set("Content-Type", front.TypeJSON)
			r.Header.Set("Authorization", h.as("bob"))
			w := httptest.NewRecorder()
			h.door.ServeHTTP(w, r)
			if w.Code != test.want {
				t.Errorf("got %d: %s, want %d", w.Code, w.Body, test.want)
			}
		})
	}
}

// open is a document without auth.
func open(from *adapterapi.Access) adapterapi.Access {
	return adapterapi.Access{Version: from.Version, Generation: from.Generation, Server: from.Server, Mode: adapterapi.AccessNone, Audit: from.Audit}
}
