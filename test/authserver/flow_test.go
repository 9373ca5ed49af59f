package authserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/auth/extauth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/slipway-mcp/slipway/test/authserver"
)

const callback = "http://127.0.0.1:1/callback" // nothing listens there

// The whole way of the official client: 401, metadata, login, call, refresh, step-up.
func TestOfficialClient(t *testing.T) {
	type handler = auth.OAuthHandler
	user := func(t *testing.T, server *authserver.Server, config auth.AuthorizationCodeHandlerConfig) handler {
		config.RedirectURL = callback
		config.Client = server.HTTPClient()
		config.AuthorizationCodeFetcher = func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			values, err := server.Login(ctx, args.URL)
			return &auth.AuthorizationResult{Code: values.Get("code"), State: values.Get("state"), Iss: values.Get("iss")}, err
		}
		made, err := auth.NewAuthorizationCodeHandler(&config)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	tests := map[string]struct {
		client   func(*testing.T, *authserver.Server) handler
		subject  string
		lifetime time.Duration
		// fewest is how often the client asks for a token by each grant type at least: it refreshes as
		// often as it likes.
		fewest map[string]int
	}{
		"client ID metadata document": {
			client: func(t *testing.T, server *authserver.Server) handler {
				return user(t, server, auth.AuthorizationCodeHandlerConfig{ClientIDMetadataDocumentConfig: &auth.ClientIDMetadataDocumentConfig{URL: document(t)}})
			},
			subject: "alice", lifetime: time.Second, fewest: map[string]int{"authorization_code": 2, "refresh_token": 2},
		},
		"dynamic registration": {
			client: func(t *testing.T, server *authserver.Server) handler {
				return user(t, server, auth.AuthorizationCodeHandlerConfig{DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{
					Metadata: &oauthex.ClientRegistrationMetadata{RedirectURIs: []string{callback}, GrantTypes: []string{"authorization_code", "refresh_token"}},
				}})
			},
			subject: "alice", lifetime: time.Second, fewest: map[string]int{"authorization_code": 2, "refresh_token": 2},
		},
		"registered before": {
			client: func(t *testing.T, server *authserver.Server) handler {
				return user(t, server, auth.AuthorizationCodeHandlerConfig{PreregisteredClient: &oauthex.ClientCredentials{ClientID: "app"}})
			},
			subject: "alice", lifetime: time.Hour, fewest: map[string]int{"authorization_code": 2},
		},
		"client credentials": {
			client: func(t *testing.T, server *authserver.Server) handler {
				made, err := extauth.NewClientCredentialsHandler(&extauth.ClientCredentialsHandlerConfig{
					Credentials: &oauthex.ClientCredentials{ClientID: "bot", ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: "hush"}}, HTTPClient: server.HTTPClient(),
				})
				if err != nil {
					t.Fatal(err)
				}
				return made
			},
			subject: "bot", lifetime: time.Hour, fewest: map[string]int{"client_credentials": 2},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			protected := httptest.NewUnstartedServer(nil)
			address := "https://" + protected.Listener.Addr().String()
			server := authserver.Start(t, authserver.Options{
				Path: "/tenant", Algorithms: []jose.SignatureAlgorithm{jose.ES256}, Lifetime: test.lifetime, Audience: address + "/mcp", // extauth does not send resource
				Clients: []authserver.Client{{ID: "app", RedirectURIs: []string{callback}, AuthMethod: "none"}, {ID: "bot", Secret: "hush"}},
			})
			guard := &guard{url: address, server: server, next: mcpServer()}
			protected.Config.Handler = guard
			protected.StartTLS()
			t.Cleanup(protected.Close)

			session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
				Endpoint: address + "/mcp", HTTPClient: server.HTTPClient(), OAuthHandler: test.client(t, server), DisableStandaloneSSE: true,
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = session.Close() }()
			for _, tool := range []string{"read", "write", "read"} {
				if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool}); err != nil {
					t.Fatalf("call %s: %v", tool, err)
				}
			}
			want := []string{"read as " + test.subject + ": use", "write as " + test.subject + ": use write", "read as " + test.subject + ": use write"}
			if diff := cmp.Diff(want, guard.seen()); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			for grantType, fewest := range test.fewest {
				if got := count(server.Grants(), grantType); got < fewest || grantType == "authorization_code" && got > fewest {
					t.Errorf("%d tokens by %s, want %d: %v", got, grantType, fewest, server.Grants())
				}
			}
			for _, grantType := range server.Grants() {
				if test.fewest[grantType] == 0 {
					t.Errorf("a token by %s", grantType)
				}
			}
		})
	}
}

func count(all []string, one string) (n int) {
	for _, each := range all {
		if each == one {
			n++
		}
	}
	return n
}

// document serves a client ID metadata document.
func document(t *testing.T) string {
	var served *httptest.Server
	served = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(authserver.Client{ID: served.URL + r.URL.Path, Name: "test", RedirectURIs: []string{callback}, AuthMethod: "none"})
	}))
	t.Cleanup(served.Close)
	return served.URL + "/client.json"
}

func mcpServer() http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "protected", Version: "1"}, nil)
	for _, name := range []string{"read", "write"} {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
	}
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
}

// guard is a tiny resource server. It requires the scope use of every client, and the scope write of clients that call write.
type guard struct {
	url    string
	server *authserver.Server
	next   http.Handler

	mu    sync.Mutex
	calls []string
}

func (g *guard) seen() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const wellKnown = "/.well-known/oauth-protected-resource/mcp"
	if r.URL.Path == wellKnown {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"resource": g.url + "/mcp", "authorization_servers": []string{g.server.Issuer}})
		return
	}
	refuse := func(status int, scope, reason string) {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer resource_metadata=%q, scope=%q%s", g.url+wellKnown, scope, reason))
		w.WriteHeader(status)
	}
	text, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		refuse(http.StatusUnauthorized, "use", "")
		return
	}
	subject, scopes, err := g.verify(text)
	if err != nil {
		refuse(http.StatusUnauthorized, "use", `, error="invalid_token"`)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var message struct {
		Method string
		Params struct{ Name string }
	}
	_ = json.Unmarshal(body, &message) // the server refuses what is none
	if message.Method == "tools/call" {
		if message.Params.Name == "write" && !slices.Contains(scopes, "write") {
			refuse(http.StatusForbidden, "write", `, error="insufficient_scope"`)
			return
		}
		g.mu.Lock()
		g.calls = append(g.calls, message.Params.Name+" as "+subject+": "+strings.Join(scopes, " "))
		g.mu.Unlock()
	}
	g.next.ServeHTTP(w, r)
}

func (g *guard) verify(text string) (subject string, scopes []string, err error) {
	token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return "", nil, err
	}
	var claims struct {
		jwt.Claims
		Scope string `json:"scope"`
	}
	if err := token.Claims(g.server.Keys(), &claims); err != nil {
		return "", nil, err
	}
	expected := jwt.Expected{Issuer: g.server.Issuer, AnyAudience: jwt.Audience{g.url + "/mcp"}, Time: time.Now()}
	scopes = slices.Sorted(slices.Values(strings.Fields(claims.Scope)))
	return claims.Subject, scopes, claims.ValidateWithLeeway(expected, time.Minute)
}
