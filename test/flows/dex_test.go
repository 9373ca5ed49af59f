//go:build conformance

package flows

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/slipway-mcp/slipway/test/adapter"
	"github.com/slipway-mcp/slipway/test/dex"
	"github.com/slipway-mcp/slipway/test/hang"
)

var alice = dex.User{Email: "alice@example.com", Password: "wonderland", Groups: []string{"sre"}}

// provided is an adapter whose callers have tokens of dex.
type provided struct {
	provider     dex.Provider
	address, url string
	document     *adapter.AccessDocument
}

func startDex(t *testing.T, rotate time.Duration) *provided {
	t.Helper()
	address := freeAddress(t)
	p := &provided{address: address, url: "http://" + address + "/mcp"}
	p.provider = dex.Start(t, dex.Config{
		Rotate: rotate, Users: []dex.User{alice},
		Clients: []dex.Client{
			{ID: "app", Name: "App", Public: true, RedirectURIs: []string{callback}},
			{ID: "bot", Name: "Bot", Secret: "hush"},
			{ID: p.url, Name: "Server", Secret: "unused", TrustedPeers: []string{"app", "bot"}},
		},
	})
	return p
}

// serve runs the adapter, which knows the keys that dex has now.
func (p *provided) serve(t *testing.T) {
	t.Helper()
	p.document = adapter.NewAccess(t, p.url, adapter.Issuer(t, p.provider.Issuer, p.url, p.keys(t)), adapter.Everything())
	adapter.Start(t, *programs["sidecar"], "--listen", p.address, "--access-file", p.document.Path, "--", *programs["echo"])
}

// scopes are what dex puts the server's URL into the audience for.
func (p *provided) scopes() []string { return []string{"openid", dex.AudienceScope(p.url)} }

// keys are those that dex publishes.
func (p *provided) keys(t *testing.T) (set jose.JSONWebKeySet) {
	t.Helper()
	response, err := p.provider.HTTPClient().Get(p.provider.Issuer + "/keys")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&set); err != nil || len(set.Keys) == 0 {
		t.Fatalf("GET keys: %s, %v, %d keys", response.Status, err, len(set.Keys))
	}
	return set
}

// user is a person with a browser.
func (p *provided) user(t *testing.T) auth.OAuthHandler {
	t.Helper()
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		PreregisteredClient: &oauthex.ClientCredentials{ClientID: "app"}, RedirectURL: callback, Client: p.provider.HTTPClient(),
		ScopeFilter: func([]string) []string { return p.scopes() },
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			values, err := p.provider.Login(ctx, args.URL, alice)
			return &auth.AuthorizationResult{Code: values.Get("code"), State: values.Get("state"), Iss: values.Get("iss")}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// bot is a client with a secret. That of the SDK cannot ask for the scope that dex wants.
func (p *provided) bot(t *testing.T, scopes ...string) *holder {
	t.Helper()
	config := clientcredentials.Config{ClientID: "bot", ClientSecret: "hush", TokenURL: p.provider.Issuer + "/token", Scopes: scopes}
	return &holder{renew: func() (*oauth2.Token, error) {
		return config.Token(context.WithValue(t.Context(), oauth2.HTTPClient, p.provider.HTTPClient()))
	}}
}

// holder keeps a token until it is told to get another one.
type holder struct {
	renew func() (*oauth2.Token, error)
	held  atomic.Pointer[oauth2.Token]
}

func (h *holder) TokenSource(context.Context) (oauth2.TokenSource, error) { return h, nil }

func (h *holder) Token() (*oauth2.Token, error) {
	if held := h.held.Load(); held != nil {
		return held, nil
	}
	return h.next()
}

func (h *holder) next() (*oauth2.Token, error) {
	token, err := h.renew()
	if err == nil {
		h.held.Store(token)
	}
	return token, err
}

func (h *holder) Authorize(_ context.Context, _ *http.Request, response *http.Response) error {
	_ = response.Body.Close()
	_, err := h.next()
	return err
}

func connect(t *testing.T, url string, handler auth.OAuthHandler) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, nil).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: url, OAuthHandler: handler}, &mcp.ClientSessionOptions{ProtocolVersion: legacy})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// Users and programs get their tokens from dex.
func TestDex(t *testing.T) {
	t.Parallel()
	p := startDex(t, 0)
	p.serve(t)
	for name, handler := range map[string]auth.OAuthHandler{"login": p.user(t), "client credentials": p.bot(t, p.scopes()...)} {
		t.Run(name, func(t *testing.T) {
			session := connect(t, p.url, handler)
			if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "pid"}); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("another audience", func(t *testing.T) {
		token, err := p.bot(t, "openid").Token()
		if err != nil {
			t.Fatal(err)
		}
		if answer := send(t, p.url, token); answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s", answer.Status)
		}
	})
}

// A token that is signed by a new key is no reason to log in again: the adapter asks for patience until the
// document has the key. The session is there all the time.
func TestRotationOfDex(t *testing.T) {
	t.Parallel()
	p := startDex(t, 2*time.Second)
	bot := p.bot(t, p.scopes()...)
	if _, err := bot.next(); err != nil { // before the adapter has the keys: dex does not wait
		t.Fatal(err)
	}
	p.serve(t)
	session := connect(t, p.url, bot)
	before := pid(t, session)
	known := func(token *oauth2.Token) bool {
		return slices.ContainsFunc(p.document.Issuers[0].Keys, func(key json.RawMessage) bool { return strings.Contains(string(key), keyID(t, token)) })
	}
	eventually(t, "dex signs with a new key", func() bool {
		token, err := bot.next()
		if err != nil {
			t.Fatal(err)
		}
		return !known(token)
	})
	token, err := bot.Token()
	if err != nil {
		t.Fatal(err)
	}
	answer := send(t, p.url, token)
	if retry := answer.Header.Get("Retry-After"); answer.StatusCode != http.StatusServiceUnavailable || retry != "5" || answer.Header.Get("WWW-Authenticate") != "" {
		t.Errorf("%s, Retry-After %q, WWW-Authenticate %q", answer.Status, retry, answer.Header.Get("WWW-Authenticate"))
	}
	if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "pid"}); err == nil || !strings.Contains(err.Error(), "Service Unavailable") {
		t.Errorf("the client says %v", err)
	}
	p.document.Issuers[0] = adapter.Issuer(t, p.provider.Issuer, p.url, p.keys(t))
	p.document.Write(t)
	eventually(t, "the adapter knows the key", func() bool { return send(t, p.url, token).StatusCode != http.StatusServiceUnavailable })
	if after := pid(t, session); after != before {
		t.Errorf("process %s serves the session, want %s", after, before)
	}
}

func pid(t *testing.T, session *mcp.ClientSession) string {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "pid"})
	if err != nil {
		t.Fatal(err)
	}
	return result.Content[0].(*mcp.TextContent).Text
}

// keyID names the key of a token, which is not verified.
func keyID(t *testing.T, token *oauth2.Token) string {
	t.Helper()
	parsed, err := jwt.ParseSigned(token.AccessToken, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Headers[0].KeyID
}

// send asks for nothing that needs a session.
func send(t *testing.T, url string, token *oauth2.Token) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	token.SetAuthHeader(request)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response
}

// eventually asks again until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(hang.Guard)
	for poll := time.Tick(50 * time.Millisecond); !condition(); {
		select {
		case <-poll:
		case <-deadline:
			t.Fatalf("not so: %s", what)
		}
	}
}
