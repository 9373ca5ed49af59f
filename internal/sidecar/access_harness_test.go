package sidecar

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/test/authserver"
)

// guard is the gate of an adapter, with the issuer whose tokens count and the document in effect.
type guard struct {
	t        *testing.T
	issuer   *authserver.Server
	gate     *access.Gate
	document adapterapi.Access
}

// newGuard has the rules of accessRules in effect, and asks for tokens, unless it is told otherwise.
func newGuard(t *testing.T, change func(*adapterapi.Access)) *guard {
	t.Helper()
	g := &guard{t: t, issuer: authserver.Start(t, authserver.Options{Algorithms: []jose.SignatureAlgorithm{jose.ES256}})}
	g.gate = access.New(access.Options{Ring: func() adapterapi.Keyring { return adapterapi.Keyring{Current: testKey} }, Required: true, Log: logr.Discard()})
	g.document = adapterapi.Access{
		Version: adapterapi.AccessVersion, Server: adapterapi.AccessServer{Namespace: "demo", Name: "echo"},
		Mode: adapterapi.AccessRequired, Resources: []string{resourceURL}, AuthorizationServers: []string{g.issuer.Issuer},
		Issuers: []adapterapi.AccessIssuer{{
			Name: "corp", Issuer: g.issuer.Issuer, Audiences: []string{resourceURL}, MaxLifetimeSeconds: 3600,
			Claims: adapterapi.AccessClaims{User: "sub", Groups: "groups", Client: "azp"},
		}},
		Scopes: []string{"mcp:use"},
		Audit:  adapterapi.AccessAudit{Level: adapterapi.AuditNone, WhenFull: adapterapi.AuditDrop},
	}
	for _, key := range g.issuer.Keys().Keys {
		text, err := json.Marshal(key)
		if err != nil {
			t.Fatal(err)
		}
		g.document.Issuers[0].Keys = append(g.document.Issuers[0].Keys, text)
	}
	g.document.Rules, g.document.Blocked, g.document.Hidden = accessRules()
	g.take(change)
	return g
}

// accessRules are rules for the server matrix. They give each user something else.
func accessRules() (rules []adapterapi.AccessRule, blocked []adapterapi.AccessSubject, hidden []string) {
	user := func(name string) []adapterapi.AccessSubject {
		return []adapterapi.AccessSubject{{Kind: adapterapi.SubjectUser, Name: "corp:" + name}}
	}
	rules = []adapterapi.AccessRule{
		{Subjects: user("alice"), Tools: []string{"echo", "co*"}, Prompts: []string{"*"}, Resources: []string{"matrix://item/"}},
		{Subjects: user("bob"), Tools: []string{"revision"}, Resources: []string{"matrix://plain"}},
		{Subjects: user("carol"), Tools: []string{"echo"}},
		{Subjects: user("carol"), Tools: []string{"*"}, Prompts: []string{"greeting"}, Scopes: []string{"deep"}},
		{Subjects: user("root"), Tools: []string{"*"}, Prompts: []string{"*"}, Resources: []string{"*"}},
		{Subjects: user("mallory"), Tools: []string{"*"}, Prompts: []string{"*"}, Resources: []string{"*"}},
	}
	return rules, []adapterapi.AccessSubject{{Kind: adapterapi.SubjectUser, Name: "corp:mallory"}}, []string{"grow"}
}

// take puts a changed document into effect.
func (g *guard) take(change func(*adapterapi.Access)) {
	g.t.Helper()
	if change != nil {
		change(&g.document)
	}
	g.document.Generation++
	if err := g.gate.Take([]byte(g.sign(testKey))); err != nil {
		g.t.Fatalf("take access document: %v", err)
	}
}

func (g *guard) sign(key adapterapi.Key) string {
	g.t.Helper()
	signed, err := g.document.Sign(key)
	if err != nil {
		g.t.Fatal(err)
	}
	return signed.Text
}

// guarded changes the configuration of an adapter so that the guard is its gate.
func (g *guard) guarded(change func(*config.Config)) func(*config.Config) {
	return func(c *config.Config) {
		c.Access = g.gate
		if change != nil {
			change(c)
		}
	}
}

// token returns an Authorization header. The claims take the place of those that would do.
func (g *guard) token(user string, claims map[string]any) string {
	all := map[string]any{"sub": user, "aud": resourceURL, "scope": "mcp:use"}
	maps.Copy(all, claims)
	return "Bearer " + g.issuer.Mint(all)
}

// expiring returns the header of a token that counts for so long yet, because of the leeway for clocks.
func (g *guard) expiring(user string, in time.Duration) string {
	const leeway = 30 * time.Second
	now := time.Now()
	return g.token(user, map[string]any{"iat": now.Add(-time.Minute).Unix(), "exp": now.Add(in - leeway).Unix()})
}

// shown is an answer to a request.
type shown struct {
	status  int
	header  http.Header
	message string // the answer of JSON-RPC, without events of other messages; empty if there is none
}

// request makes one HTTP request with headers in addition to those that all have. An empty value removes one.
func (g *guard) request(method, url, token, body string, headers ...string) *http.Response {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	headers = append([]string{"Content-Type", "application/json", "Accept", "application/json, text/event-stream", "Authorization", token}, headers...)
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	return response
}

// ask makes a request and reads the answer to its end.
func (g *guard) ask(method, url, token, body string, headers ...string) shown {
	g.t.Helper()
	response := g.request(method, url, token, body, headers...)
	defer func() { _ = response.Body.Close() }()
	got := shown{status: response.StatusCode, header: response.Header}
	if method == http.MethodGet && response.StatusCode == http.StatusOK {
		return got // it does not end
	}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		got.message = g.nextAnswer(bufio.NewReader(response.Body))
		return got
	}
	all, err := io.ReadAll(response.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	got.message = string(all)
	return got
}

// nextAnswer reads events until one has an answer. It is empty if the stream ends before.
func (g *guard) nextAnswer(events *bufio.Reader) string {
	g.t.Helper()
	for {
		line, err := events.ReadBytes('\n')
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && !bytes.Contains(data, []byte(`"method":"`)) && bytes.Contains(data, []byte("jsonrpc")) {
			return string(bytes.TrimSpace(data))
		}
		if errors.Is(err, io.EOF) {
			return ""
		}
		if err != nil {
			g.t.Fatal(err)
		}
	}
}
