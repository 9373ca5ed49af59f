package sidecar

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// For another user with a good token, a session does not exist. A refreshed token of its owner goes on
// with it, also with other scopes.
func TestVerifiedSessionsBelongToTheirUser(t *testing.T) {
	t.Parallel()
	for name := range matrixBackends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, nil)
			url := startMatrix(t, g, name)
			s := &sessionSpeaker{guard: g, url: url, token: g.token("alice", nil), revision: "2025-11-25"}
			if status := s.open(); status != http.StatusOK {
				t.Fatalf("alice connects: %d", status)
			}
			unknown := g.ask(http.MethodPost, url, g.token("bob", nil), requestText("ping", ""), sessionHeader, "0123456789abcdef")
			for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
				got := g.ask(method, url, g.token("bob", nil), requestText("ping", ""), s.headers()...)
				if got.status != http.StatusNotFound || got.status != unknown.status || got.message != unknown.message || got.header.Get("WWW-Authenticate") != "" {
					t.Errorf("%s by bob: %d %s, want as for an unknown session: %d %s", method, got.status, got.message, unknown.status, unknown.message)
				}
			}
			s.token = g.token("alice", map[string]any{"scope": "deep mcp:use other"})
			if got := s.ask("tools/call", catalog["echo"].params); got.status != http.StatusOK {
				t.Errorf("alice with a refreshed token: %d %s", got.status, got.message)
			}
			s.close()
		})
	}
}

// The oldest transport needs a token with both of its requests, and the one of its owner.
func TestOldestTransportNeedsTokens(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	url := startMatrix(t, g, "a process for each session")
	s := &sseSpeaker{guard: g, url: strings.TrimSuffix(url, Path), token: g.token("alice", nil)}
	if status := s.open(); status != http.StatusOK {
		t.Fatalf("alice connects: %d", status)
	}
	defer s.close()
	for name, test := range map[string]struct {
		method, url, token string
		want               int
	}{
		"a stream without a token":         {http.MethodGet, s.url + "/sse", "", http.StatusUnauthorized},
		"a message without a token":        {http.MethodPost, s.post, "", http.StatusUnauthorized},
		"a message of another user":        {http.MethodPost, s.post, g.token("bob", nil), http.StatusNotFound},
		"a message with a refreshed token": {http.MethodPost, s.post, g.token("alice", nil), http.StatusAccepted},
	} {
		got := g.ask(test.method, test.url, test.token, requestText("ping", ""))
		if challenge := got.header.Get("WWW-Authenticate"); got.status != test.want || (challenge != "") != (test.want == http.StatusUnauthorized) {
			t.Errorf("%s: %d %s, challenge %s, want %d", name, got.status, got.message, challenge, test.want)
		}
	}
}

// If the token lacks a scope, the challenge names all scopes that the call needs. With them, the client can
// continue the same session.
func TestStepUp(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	url := startMatrix(t, g, "a process for each session")
	s := &sessionSpeaker{guard: g, url: url, token: g.token("carol", nil), revision: "2025-11-25"}
	if status := s.open(); status != http.StatusOK {
		t.Fatalf("carol connects: %d", status)
	}
	refused := s.ask("tools/call", catalog["revision"].params)
	challenge := refused.header.Get("WWW-Authenticate")
	for _, want := range []string{`Bearer error="insufficient_scope"`, `scope="mcp:use deep"`, `resource_metadata="` + metadataURL + `"`, "error_description="} {
		if !strings.Contains(challenge, want) {
			t.Errorf("the challenge is %s, want %s in it", challenge, want)
		}
	}
	if refused.status != http.StatusForbidden || !strings.Contains(refused.message, `"id":7,"error":{"code":403,`) {
		t.Errorf("carol calls: %d %s", refused.status, refused.message)
	}
	s.token = g.token("carol", map[string]any{"scope": "mcp:use deep"})
	if got := s.ask("tools/call", catalog["revision"].params); got.status != http.StatusOK {
		t.Errorf("carol calls with the scope: %d %s", got.status, got.message)
	}
	if got := g.ask(http.MethodPost, url, g.token("alice", map[string]any{"scope": "other"}), initializeMessage); got.status != http.StatusForbidden ||
		!strings.Contains(got.header.Get("WWW-Authenticate"), `scope="mcp:use"`) {
		t.Errorf("alice without the scope that all need: %d %s", got.status, got.header.Get("WWW-Authenticate"))
	}
}

// Metadata and challenges name a configured resource, whatever the client says that the Host is.
func TestMetadataGoesByConfiguredResources(t *testing.T) {
	t.Parallel()
	const other = "https://other.example.com/mcp"
	g := newGuard(t, func(a *adapterapi.Access) { a.Resources = append(a.Resources, other) })
	_, url := startAdapter(t, g.guarded(func(c *config.Config) { c.Origins.Hosts = []string{"*"} }))
	base := strings.TrimSuffix(url, Path)
	for host, want := range map[string]string{
		"mcp.example.com": resourceURL, "other.example.com": other, "OTHER.example.com": other, "evil.example.com": resourceURL, "": resourceURL,
	} {
		headers := []string{"Host", host, "X-Forwarded-Host", "evil.example.com", "X-Forwarded-Proto", "ftp", "Forwarded", "host=evil.example.com"}
		challenge := g.ask(http.MethodPost, url, "", initializeMessage, headers...).header.Get("WWW-Authenticate")
		if wanted := strings.TrimSuffix(want, Path) + access.MetadataPath + Path; !strings.Contains(challenge, `resource_metadata="`+wanted+`"`) {
			t.Errorf("Host %q: the challenge is %s, want %s", host, challenge, wanted)
		}
		for _, path := range []string{access.MetadataPath, access.MetadataPath + Path} {
			response := g.request(http.MethodGet, base+path, "", "", headers...)
			var document struct {
				Resource string   `json:"resource"`
				Servers  []string `json:"authorization_servers"`
				Scopes   []string `json:"scopes_supported"`
			}
			err := json.NewDecoder(response.Body).Decode(&document)
			_ = response.Body.Close()
			if err != nil || document.Resource != want || len(document.Servers) != 1 || document.Servers[0] != g.issuer.Issuer || len(document.Scopes) != 1 ||
				response.Header.Get("Access-Control-Allow-Origin") != "*" {
				t.Errorf("Host %q, %s: %s %+v %v, want %s", host, path, response.Status, document, err, want)
			}
		}
	}
}

// Hostile tokens open nothing, and the answer never says why.
func TestHostileTokens(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	_, url := startAdapter(t, g.guarded(nil))
	texts := map[string]bool{}
	for name, token := range g.issuer.Hostile(map[string]any{"sub": "alice", "aud": resourceURL, "scope": "mcp:use"}) {
		got := g.ask(http.MethodPost, url, "Bearer "+token, initializeMessage)
		if got.status == http.StatusRequestHeaderFieldsTooLarge || got.status == http.StatusBadRequest && strings.Contains(got.header.Get("WWW-Authenticate"), "invalid_request") {
			continue // it is no token at all
		}
		if got.status != http.StatusUnauthorized || !strings.Contains(got.header.Get("WWW-Authenticate"), `error="invalid_token"`) {
			t.Errorf("%s: %d %s", name, got.status, got.message)
		}
		texts[got.message] = true
	}
	if len(texts) != 1 {
		t.Errorf("the answers tell the tokens apart: %v", texts)
	}
}

// Callers without a token cannot make the adapter read a body.
func TestMetadataReadsNoBody(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	_, url := startAdapter(t, g.guarded(nil))
	for _, path := range []string{access.MetadataPath, access.MetadataPath + Path} {
		at := strings.TrimSuffix(url, Path) + path
		if got := g.ask(http.MethodPost, at, "", "this is no JSON"); got.status != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d, want 405", path, got.status)
		}
		if got := g.ask(http.MethodGet, at, "", ""); got.status != http.StatusOK {
			t.Errorf("GET %s: %d, want 200", path, got.status)
		}
	}
}
