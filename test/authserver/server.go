// Package authserver is an authorization server for tests. It logs users in without a browser, and it makes
// the tokens of attackers, too.
package authserver

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/slipway-mcp/slipway/test/hang"
)

// Options configure a Server.
type Options struct {
	// Path is that of the issuer, such as /realms/main. By default it has none.
	Path string
	// Clients are registered from the start.
	Clients []Client
	// Scopes are those that there are. By default any scope is.
	Scopes []string
	// Audience is that of tokens whose request names no resource.
	Audience string
	// Lifetime is that of tokens, if not ten minutes.
	Lifetime time.Duration
	// Algorithms have a key each, and the first one signs. The default is RS256 and ES256.
	Algorithms []jose.SignatureAlgorithm
	// Metadata may change what the server says of itself.
	Metadata func(map[string]any)
}

// User is a person who logs in.
type User struct {
	Subject string
	Groups  []string
	// Scopes are those that the user may have, if not all.
	Scopes []string
}

// Server is an authorization server.
type Server struct {
	http.Handler
	Issuer string
	CA     []byte // as PEM

	options   Options
	transport http.RoundTripper // of whom the server asks, and of HTTPClient
	attackers func() []signingKey

	mu      sync.Mutex
	user    User
	clients map[string]Client
	codes   map[string]grant
	refresh map[string]grant
	served  []string
	current []signingKey
	retired []signingKey
}

// Start serves at loopback until the test is over. Users are called alice until SetUser names another.
func Start(t testing.TB, options Options) *Server {
	t.Helper()
	listening := httptest.NewUnstartedServer(nil)
	s := New("https://"+listening.Listener.Addr().String()+options.Path, options)
	listening.Config.Handler = s
	listening.StartTLS()
	t.Cleanup(listening.Close)
	s.transport = listening.Client().Transport
	s.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: listening.Certificate().Raw})
	return s
}

// New returns a server for the caller to serve at the URL of the issuer. It does not know the CA.
func New(issuer string, options Options) *Server {
	options.Lifetime = cmp.Or(options.Lifetime, 10*time.Minute)
	if options.Algorithms == nil {
		options.Algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256}
	}
	s := &Server{
		Issuer: issuer, options: options, user: User{Subject: "alice"},
		clients: map[string]Client{}, codes: map[string]grant{}, refresh: map[string]grant{},
		current:   generate(options.Algorithms),
		attackers: sync.OnceValue(func() []signingKey { return generate(options.Algorithms) }),
	}
	for _, client := range options.Clients {
		s.clients[client.ID] = client
	}
	s.Handler = s.routes()
	return s
}

func (s *Server) routes() http.Handler {
	path := s.options.Path
	routes := map[string]http.HandlerFunc{
		"GET /.well-known/oauth-authorization-server" + path: s.serveMetadata,
		"GET /.well-known/openid-configuration" + path:       s.serveMetadata,
		"GET " + path + "/.well-known/openid-configuration":  s.serveMetadata,
		"GET " + path + "/authorize":                         s.authorize,
		"POST " + path + "/token":                            s.token,
		"POST " + path + "/register":                         s.register,
		"GET " + path + "/keys":                              func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, s.Keys()) },
		"GET " + path + attackersKeys:                        func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, s.attackersSet()) },
	}
	mux := http.NewServeMux()
	for pattern, handler := range routes {
		mux.HandleFunc(pattern, handler)
	}
	return mux
}

func (s *Server) serveMetadata(w http.ResponseWriter, _ *http.Request) {
	metadata := map[string]any{
		"issuer":                                         s.Issuer,
		"authorization_endpoint":                         s.Issuer + "/authorize",
		"token_endpoint":                                 s.Issuer + "/token",
		"registration_endpoint":                          s.Issuer + "/register",
		"jwks_uri":                                       s.Issuer + "/keys",
		"response_types_supported":                       []string{"code"},
		"grant_types_supported":                          []string{authorizationCode, refreshToken, clientCredentials},
		"token_endpoint_auth_methods_supported":          []string{"none", "client_secret_post", "client_secret_basic"},
		"code_challenge_methods_supported":               []string{"S256"},
		"authorization_response_iss_parameter_supported": true,
		"client_id_metadata_document_supported":          true,
		"subject_types_supported":                        []string{"public"},
		"id_token_signing_alg_values_supported":          s.options.Algorithms,
	}
	if s.options.Scopes != nil {
		metadata["scopes_supported"] = s.options.Scopes
	}
	if s.options.Metadata != nil {
		s.options.Metadata(metadata)
	}
	answer(w, http.StatusOK, metadata)
}

// SetUser names who logs in from now on.
func (s *Server) SetUser(user User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.user = user
}

// Grants are the grant types of the tokens that the server has issued, the oldest first.
func (s *Server) Grants() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.served)
}

// HTTPClient trusts the server, as well as every other TLS server of httptest. It follows no redirects.
func (s *Server) HTTPClient() *http.Client {
	return &http.Client{
		Transport: s.transport, Timeout: hang.Guard,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Login does what a browser does at the URL of an authorization request. It returns the parameters of the
// redirect to the client.
func (s *Server) Login(ctx context.Context, authorization string) (url.Values, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, authorization, nil)
	if err != nil {
		return nil, fmt.Errorf("log in: %w", err)
	}
	response, err := s.HTTPClient().Do(request)
	if err != nil {
		return nil, fmt.Errorf("log in: %w", err)
	}
	_ = response.Body.Close()
	location, err := response.Location()
	if err != nil {
		return nil, fmt.Errorf("log in: %s: %w", response.Status, err)
	}
	values := location.Query()
	if reason := values.Get("error"); reason != "" {
		return values, fmt.Errorf("log in: %s: %s", reason, values.Get("error_description"))
	}
	return values, nil
}

// problem is an error that OAuth has a code for.
type problem struct {
	code, description string
}

func (p *problem) Error() string { return p.code + ": " + p.description }

// refuse answers a program.
func refuse(w http.ResponseWriter, err error) {
	status, reason := http.StatusBadRequest, &problem{code: "server_error", description: err.Error()}
	if errors.As(err, &reason) && reason.code == "invalid_client" {
		status = http.StatusUnauthorized
		w.Header().Set("WWW-Authenticate", `Basic realm="authserver"`)
	}
	answer(w, status, map[string]string{"error": reason.code, "error_description": reason.description})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who has gone gets nothing
}
