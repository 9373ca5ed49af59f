package plugin

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/bearer"
)

// What the user learns of an answer that refuses a request.
func TestRefusals(t *testing.T) {
	const rules = "See who may: kubectl get mcpserver -n support tickets -o jsonpath={.spec.access}"
	issuers := &mcpv1alpha1.Auth{Issuers: []mcpv1alpha1.Issuer{{Name: "corp", URL: "https://login.example.com"}}}
	kubernetes := &mcpv1alpha1.Auth{Kubernetes: &mcpv1alpha1.KubernetesAuth{Audiences: []mcpv1alpha1.Audience{"it's $(reboot)"}}}
	ofServer := &mcpv1alpha1.Auth{Mode: mcpv1alpha1.AuthModeServer}
	for name, test := range map[string]struct {
		auth            *mcpv1alpha1.Auth
		tokens          bearer.Source
		status          int
		challenge, body string
		err, next       string
		code            int
	}{
		"no auth": {
			nil, nil, 401, "", "", "open", "The server wants credentials that kubectl mcp does not send.", exitCredentials,
		},
		"no token of an issuer": {
			issuers, nil, 401, "Bearer", `{"error":{"message":"this server needs a token"}}`,
			"open: this server needs a token", "To call it as a user of corp, set SLIPWAY_TOKEN to an access token of https://login.example.com for this server.", exitCredentials,
		},
		"no token of an account, with words that a shell reads": {
			kubernetes, nil, 401, "", "", "open",
			"To call it as a ServiceAccount, add --service-account NAMESPACE/NAME, or first run: export SLIPWAY_TOKEN=$(kubectl create token -n NAMESPACE NAME --audience 'it'\\''s $(reboot)' --duration 10m)", exitCredentials,
		},
		"no token for the server itself": {
			ofServer, nil, 403, "", "Forbidden", "open", "Set SLIPWAY_TOKEN to a token that the server accepts. It checks tokens itself.", exitCredentials,
		},
		"not accepted": {
			ofServer, given(t, "a.e30.c"), 401, "", "", "open", "The server does not accept the token of SLIPWAY_TOKEN. See whether its keys are known: kubectl mcp doctor -n support tickets", exitCredentials,
		},
		"not allowed": {
			issuers, given(t, "abc"), 403, "", `{"error":{"message":"no rule \u001b[2J"}}`, "open: no rule  [2J",
			"The server knows you by the token of SLIPWAY_TOKEN, which may not do this. " + rules, exitCredentials,
		},
		"too little scope": {
			issuers, given(t, "abc"), 403, `Bearer error="insufficient_scope", scope="a b", error_description="x"`, "", "open",
			"The server knows you by the token of SLIPWAY_TOKEN, which may not do this. Get a token with these scopes: a b", exitCredentials,
		},
		"a key that is not known yet": {
			issuers, given(t, "abc"), 503, "", `{"error":{"message":"the key of this token is not known yet: try again in 5 seconds"}}`,
			"open: the key of this token is not known yet: try again in 5 seconds", "Try again later. If a limit is reached, raise spec.session.maxPerPod or spec.replicas.", exitUnreachable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if test.challenge != "" {
					w.Header().Set("WWW-Authenticate", test.challenge)
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}))
			defer backend.Close()
			c := &conversation{tokens: test.tokens}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, backend.URL, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := (&watched{backend.Client().Transport, &c.refusal}).RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			if content, err := io.ReadAll(response.Body); err != nil || string(content) != test.body {
				t.Errorf("the client reads %q, %v", content, err)
			}
			server := &mcpv1alpha1.MCPServer{}
			server.Namespace, server.Name, server.Spec.Auth = "support", "tickets", test.auth
			got := explain(c.explain(errors.New("open"), server))
			if got.Error() != test.err || got.next != test.next || got.code != test.code {
				t.Errorf("got %q,\n%q, %d, want %q,\n%q, %d", got.Error(), got.next, got.code, test.err, test.next, test.code)
			}
			if isRefused(got) != (test.code == exitCredentials) {
				t.Errorf("isRefused is %t", isRefused(got))
			}
		})
	}
}

// An answer that is longer than what is read of it reaches the client whole.
func TestRefusalThatIsLong(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	var refused atomic.Pointer[refusal]
	transport := &watched{toServer{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, long)
	})}, &refused}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, nil)
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if content, err := io.ReadAll(response.Body); err != nil || string(content) != long || refused.Load().words != "" {
		t.Errorf("%d bytes, %v, %q", len(content), err, refused.Load().words)
	}
}
