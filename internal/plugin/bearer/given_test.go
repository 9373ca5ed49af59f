package bearer

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// jwt is a token with claims and without a valid signature.
func jwt(claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(claims)) + "." + encode([]byte("signature"))
}

func TestFromEnvironment(t *testing.T) {
	for name, test := range map[string]struct {
		value, want string // want is empty for none
		isWrong     bool
	}{
		"none":             {"", "", false},
		"blanks":           {" \n", "", false},
		"a token":          {"abc.def-_~+/9==", "abc.def-_~+/9==", false},
		"a line":           {"abc\r\n", "abc", false},
		"with its scheme":  {"Bearer abc", "", true},
		"in quotes":        {`"abc"`, "", true},
		"two lines":        {"abc\nX-Header: 1", "", true},
		"other characters": {"häh", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			given, err := FromEnvironment(func(variable string) string {
				return map[string]string{"SLIPWAY_TOKEN": test.value}[variable]
			})
			if (err != nil) != test.isWrong || (given == nil) != (test.want == "") {
				t.Fatalf("got %v, %v", given, err)
			}
			if err != nil && strings.Contains(err.Error(), "abc") {
				t.Errorf("the error has the token: %v", err)
			}
			if given != nil {
				if got, err := given.Token(t.Context()); err != nil || got != test.want {
					t.Errorf("got %q, %v, want %q", got, err, test.want)
				}
			}
		})
	}
}

// The adapter does not say why it refuses a token. The token itself often does.
func TestProblem(t *testing.T) {
	const (
		corp    = `"iss":"https://login.example.com","sub":"alice"`
		address = "http://tickets.support.svc/mcp"
		later   = `"exp":2000000600`
	)
	now := time.Unix(2000000000, 0)
	kubernetes := &mcpv1alpha1.Auth{Kubernetes: &mcpv1alpha1.KubernetesAuth{}}
	issuers := &mcpv1alpha1.Auth{Issuers: []mcpv1alpha1.Issuer{{Name: "corp", URL: "https://login.example.com", Audiences: []mcpv1alpha1.Audience{"mcp-tickets"}}}}
	both := &mcpv1alpha1.Auth{Kubernetes: kubernetes.Kubernetes, Issuers: []mcpv1alpha1.Issuer{{Name: "corp", URL: "https://login.example.com"}}}
	for name, test := range map[string]struct {
		token string
		auth  *mcpv1alpha1.Auth
		want  string
	}{
		"opaque":                   {"abc", kubernetes, "It is no JWT that could be read."},
		"three parts of something": {"a.b.c", kubernetes, "It is no JWT that could be read."},
		"expired":                  {jwt(`{"exp":1999999999}`), kubernetes, "It has expired at 2033-05-18T03:33:19Z."},
		"expired, for the server":  {jwt(`{"exp":1999999999}`), &mcpv1alpha1.Auth{Mode: mcpv1alpha1.AuthModeServer}, "It has expired at 2033-05-18T03:33:19Z."},
		"no issuer, for a server":  {jwt(`{` + later + `}`), &mcpv1alpha1.Auth{Mode: mcpv1alpha1.AuthModeServer}, ""},
		"of another issuer":        {jwt(`{"iss":"https://evil.example",` + later + `}`), issuers, `Its issuer is "https://evil.example", which spec.auth.issuers does not have.`},
		"for another audience":     {jwt(`{` + corp + `,"aud":["a","b"],` + later + `}`), issuers, `Its audience is ["a" "b"], and the server wants one of ["mcp-tickets"].`},
		"of the cluster, for it":   {jwt(`{"iss":"https://kubernetes","aud":"https://kubernetes",` + later + `}`), both, `Its audience is ["https://kubernetes"], and the server wants one of ["` + address + `"].`},
		"for no audience":          {jwt(`{` + corp + `,` + later + `}`), both, `Its audience is [], and the server wants one of ["` + address + `"].`},
		"for the server":           {jwt(`{` + corp + `,"aud":"mcp-tickets",` + later + `}`), issuers, ""},
		"for too long":             {jwt(`{"iss":"https://kubernetes","aud":["` + address + `"],"iat":2000000000,"exp":2000007200}`), kubernetes, "It is valid for 2h0m0s, and the server accepts tokens of at most 1h0m0s (maxLifetime of spec.auth.kubernetes)."},
		"for long enough":          {jwt(`{` + corp + `,"aud":"mcp-tickets","iat":2000000000,"exp":2000007200}`), issuers, ""},
		"too long for an issuer":   {jwt(`{` + corp + `,"aud":"mcp-tickets","iat":1999900000,"exp":2000007200}`), issuers, "It is valid for 29h46m40s, and the server accepts tokens of at most 24h0m0s (maxLifetime of spec.auth.issuers)."},
		"with a slash at its end":  {jwt(`{"iss":"https://kubernetes","aud":["` + address + `/"],` + later + `}`), kubernetes, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (&Given{test.token}).Problem(server(test.auth), now); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	if got := (&Given{jwt(`{` + corp + `}`)}).String(); got != `SLIPWAY_TOKEN, whose subject is "alice"` {
		t.Errorf("got %s", got)
	}
}
