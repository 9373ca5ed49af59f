package issuer

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/addresspolicy"
)

func TestDiscovery(t *testing.T) {
	const (
		oauth  = "/.well-known/oauth-authorization-server"
		openID = "/.well-known/openid-configuration"
	)
	tests := map[string]struct {
		path  string            // of the issuer
		pages map[string]string // the issuer, by the path of the metadata that names it
		want  []string          // what is asked before the keys
	}{
		"RFC 8414":                   {"", map[string]string{oauth: ""}, []string{oauth}},
		"OpenID":                     {"", map[string]string{openID: ""}, []string{oauth, openID}},
		"both":                       {"", map[string]string{oauth: "", openID: ""}, []string{oauth}},
		"a slash at the end":         {"/", map[string]string{oauth: "/"}, []string{oauth}},
		"RFC 8414, path":             {"/realms/main", map[string]string{oauth + "/realms/main": "/realms/main"}, []string{oauth + "/realms/main"}},
		"OpenID, path inserted":      {"/realms/main", map[string]string{openID + "/realms/main": "/realms/main"}, []string{oauth + "/realms/main", openID + "/realms/main"}},
		"OpenID, path in front":      {"/realms/main", map[string]string{"/realms/main" + openID: "/realms/main"}, []string{oauth + "/realms/main", openID + "/realms/main", "/realms/main" + openID}},
		"path and slash":             {"/tenant/", map[string]string{"/tenant" + openID: "/tenant/"}, []string{oauth + "/tenant", openID + "/tenant", "/tenant" + openID}},
		"escaped path":               {"/a%2Fb", map[string]string{"/a%2Fb" + openID: "/a%2Fb"}, []string{oauth + "/a%2Fb", openID + "/a%2Fb", "/a%2Fb" + openID}},
		"the first is another's":     {"", map[string]string{oauth: "/other", openID: ""}, []string{oauth, openID}},
		"the first lacks the slash":  {"/", map[string]string{oauth: "", openID: "/"}, []string{oauth, openID}},
		"the root's is not the path": {"/realms/main", map[string]string{oauth: "/realms/main", "/realms/main" + openID: "/realms/main"}, []string{oauth + "/realms/main", openID + "/realms/main", "/realms/main" + openID}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := startAuthority(t)
			for place, issuer := range test.pages {
				a.serve(place, document(complete(a.URL+issuer, a.URL+"/keys")))
			}
			a.serve("/keys", document(keySetOf(jwk(&ecKey.PublicKey, "one", nil))))
			got, err := patient().fetch(t.Context(), a.source(test.path))
			if err != nil {
				t.Fatal(err)
			}
			if got.Issuer != a.URL+test.path || len(got.Keys) != 1 || got.Warnings != nil {
				t.Errorf("fetch: %+v", got)
			}
			if diff := cmp.Diff(append(test.want, "/keys"), a.requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMetadataWithoutKeysLeadsOn(t *testing.T) {
	a := startAuthority(t)
	a.serve("/.well-known/oauth-authorization-server", document(complete(a.URL, "")))
	a.serve("/.well-known/openid-configuration", document(complete(a.URL, a.URL+"/keys")))
	a.serve("/keys", document(keySetOf(jwk(&ecKey.PublicKey, "one", nil))))
	if _, err := patient().fetch(t.Context(), a.source("")); err != nil {
		t.Error(err)
	}
}

func TestWarnings(t *testing.T) {
	tests := map[string]struct {
		change object
		want   []string
	}{
		"none":               {},
		"registration":       {object{"client_id_metadata_document_supported": false, "registration_endpoint": "https://x/register"}, nil},
		"no methods":         {object{"code_challenge_methods_supported": nil}, []string{warningPKCE}},
		"no S256":            {object{"code_challenge_methods_supported": []string{"plain"}}, []string{warningPKCE}},
		"no way to register": {object{"client_id_metadata_document_supported": nil}, []string{warningRegistration}},
		"neither":            {object{"client_id_metadata_document_supported": nil, "code_challenge_methods_supported": nil}, []string{warningPKCE, warningRegistration}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := startAuthority(t)
			metadata := complete(a.URL, a.URL+"/keys")
			maps.Copy(metadata, test.change)
			a.serve("/.well-known/openid-configuration", document(metadata))
			a.serve("/keys", document(keySetOf(jwk(&ecKey.PublicKey, "one", nil))))
			got, err := patient().fetch(t.Context(), a.source(""))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// endless writes until the client goes away.
func endless(w http.ResponseWriter, r *http.Request) {
	line := []byte(`{"issuer":"` + strings.Repeat("x", 32<<10))
	for r.Context().Err() == nil {
		if _, err := w.Write(line); err != nil {
			return
		}
	}
}

// hang answers half a document, and then nothing.
func hangHalfway(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, `{"issuer":`)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }
}

func page(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// Whatever an issuer does, a fetch ends, reads little, goes nowhere else, and says what is wrong in words
// that are not the issuer's.
func TestHostileIssuers(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the plain server was asked") }))
	t.Cleanup(plain.Close)
	canary := "surprise-7f3a"
	many := make([]object, 1000)
	for i := range many {
		many[i] = jwk(&ecKey.PublicKey, "key", nil)
	}
	tests := map[string]struct {
		metadata http.HandlerFunc // nil is one that names /keys
		keys     http.HandlerFunc
		jwksURI  string
		want     string
	}{
		"metadata redirects to plain HTTP": {metadata: redirect(plain.URL), want: "it redirects to a URL without https"},
		"metadata redirects to link-local": {metadata: redirect("https://169.254.169.254/latest/"), want: "the address 169.254.169.254 is not allowed"},
		"metadata redirects to mapped":     {metadata: redirect("https://[::ffff:169.254.169.254]/"), want: "the address ::ffff:169.254.169.254 is not allowed"},
		"metadata redirects in a loop":     {metadata: redirect("/.well-known/openid-configuration"), want: "it redirects again and again"},
		"metadata is endless":              {metadata: endless, want: "its answer is larger than 1 MiB"},
		"metadata is HTML":                 {metadata: page("<html>" + canary), want: "its metadata cannot be read"},
		"metadata is no object":            {metadata: page(`"` + canary + `"`), want: "its metadata cannot be read"},
		"metadata of another issuer":       {metadata: document(complete("https://"+canary, "https://x/keys")), want: "its metadata names another issuer"},
		"status":                           {metadata: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, canary, http.StatusTeapot) }, want: "answers with status 418"},
		"no keys anywhere":                 {jwksURI: "none", want: "its metadata names no jwks_uri with https"},
		"keys without TLS":                 {jwksURI: plain.URL, want: "its metadata names no jwks_uri with https"},
		"keys at a metadata address":       {jwksURI: "https://100.100.100.200/", want: "the address 100.100.100.200 is not allowed"},
		"keys in a file":                   {jwksURI: "file:///etc/passwd", want: "its metadata names no jwks_uri with https"},
		"keys redirect to plain HTTP":      {keys: redirect(plain.URL), want: "it redirects to a URL without https"},
		"keys redirect to a file":          {keys: redirect("file:///etc/passwd"), want: "it redirects to a URL without https"},
		"keys redirect to link-local":      {keys: redirect("https://[fe80::1]/"), want: "the address fe80::1 is not allowed"},
		"keys are endless":                 {keys: endless, want: "its answer is larger than 1 MiB"},
		"keys are HTML":                    {keys: page("<html>" + canary), want: "its keys cannot be read"},
		"keys are missing":                 {keys: document(object{}), want: "its keys cannot be read"},
		"keys are strings":                 {keys: document(object{"keys": []string{canary}}), want: "its keys cannot be read"},
		"a thousand keys":                  {keys: document(keySetOf(many...)), want: "it publishes more than 64 keys"},
		"no key":                           {keys: document(keySetOf()), want: "it publishes no key that can verify signatures"},
		"a private key":                    {keys: document(keySetOf(jwk(ecKey, "one", nil))), want: "it publishes no key that can verify signatures"},
		"connection closed":                {keys: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: "its answer cannot be understood"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := startAuthority(t)
			if test.jwksURI == "" {
				test.jwksURI = a.URL + "/keys"
			}
			if test.metadata == nil {
				test.metadata = document(complete(a.URL, test.jwksURI))
			}
			a.serve("/.well-known/openid-configuration", test.metadata)
			if test.keys != nil {
				a.serve("/keys", test.keys)
			}
			_, err := patient().fetch(t.Context(), a.source(""))
			if err == nil {
				t.Fatal("fetch took it")
			}
			if got := classify(err); got != test.want {
				t.Errorf("classify: %q, want %q; the error: %v", got, test.want, err)
			}
			if len(a.requests()) > 2*(maxRedirects+2) {
				t.Errorf("asked %d times", len(a.requests()))
			}
		})
	}
}

// All requests of a fetch share its time.
func TestSlowIssuers(t *testing.T) {
	for name, places := range map[string][]string{
		"metadata": {"/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"},
		"keys":     {"/keys"},
	} {
		t.Run(name, func(t *testing.T) {
			a := startAuthority(t)
			a.serve("/.well-known/openid-configuration", document(complete(a.URL, a.URL+"/keys")))
			for _, place := range places {
				a.serve(place, hangHalfway)
			}
			impatient := patient()
			impatient.timeout = 200 * time.Millisecond
			if name == "keys" {
				impatient.timeout = time.Second // the handshakes come first
			}
			_, err := impatient.fetch(t.Context(), a.source(""))
			if err == nil || classify(err) != "does not answer in time" {
				t.Errorf("fetch: %v", err)
			}
		})
	}
}

func TestUntrustedIssuers(t *testing.T) {
	a := startAuthority(t)
	a.serve("/.well-known/openid-configuration", document(complete(a.URL, a.URL+"/keys")))
	a.serve("/keys", document(keySetOf(jwk(&ecKey.PublicKey, "one", nil))))
	onLocalhost := strings.Replace(a.URL, "127.0.0.1", "localhost", 1)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	closed := httptest.NewTLSServer(http.NotFoundHandler())
	closed.Close()
	trusted := a.source("").CABundle
	tests := map[string]struct {
		source    Source
		addresses addresspolicy.Policy
		want      string
	}{
		"no bundle":            {Source{URL: a.URL}, patient().addresses, "its certificate is not trusted"},
		"a broken bundle":      {Source{URL: a.URL, CABundle: "surprise"}, patient().addresses, "its CA bundle has no certificate in PEM format"},
		"another name":         {Source{URL: onLocalhost, CABundle: trusted}, patient().addresses, "its certificate is for another name"},
		"no TLS":               {Source{URL: strings.Replace(plain.URL, "http://", "https://", 1)}, patient().addresses, "does not speak TLS"},
		"nothing listens":      {Source{URL: closed.URL}, patient().addresses, "cannot be reached: connection refused"},
		"loopback":             {a.source(""), addresspolicy.Policy{}, "the address 127.0.0.1 is not allowed"},
		"loopback by a name":   {Source{URL: onLocalhost, CABundle: trusted}, addresspolicy.Policy{}, "is not allowed"},
		"plain HTTP":           {Source{URL: plain.URL}, patient().addresses, "its URL is not a plain https URL"},
		"a query":              {Source{URL: a.URL + "?x"}, patient().addresses, "its URL is not a plain https URL"},
		"a user":               {Source{URL: strings.Replace(a.URL, "https://", "https://user@", 1)}, patient().addresses, "its URL is not a plain https URL"},
		"dots in its path":     {Source{URL: a.URL + "/a/../b"}, patient().addresses, "its URL is not a plain https URL"},
		"escaped dots":         {Source{URL: a.URL + "/a/%2e%2e/b"}, patient().addresses, "its URL is not a plain https URL"},
		"no API server to ask": {Source{Cluster: true}, patient().addresses, "the API server is not asked for keys"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := len(a.requests())
			fetcher := patient()
			fetcher.addresses = test.addresses
			_, err := fetcher.fetch(t.Context(), test.source)
			if err == nil || !strings.HasSuffix(classify(err), test.want) {
				t.Errorf("fetch: %v, want %q", err, test.want)
			}
			if len(a.requests()) != before {
				t.Error("the issuer was asked")
			}
		})
	}
}

// Behind a proxy no dialer sees the address of the issuer, but what is written out is recognized.
func TestRefusedBehindProxy(t *testing.T) {
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		t.Error("something was dialed")
		return nil, net.ErrClosed
	}}
	for _, target := range []string{"https://169.254.169.254/", "https://[::1]/", "http://login.example.com/"} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		if _, err := (&guard{addresspolicy.Policy{}, transport}).RoundTrip(request); err == nil {
			t.Errorf("%s was let through", target)
		}
	}
}

func TestClassify(t *testing.T) {
	tests := map[string]struct {
		err  error
		want string
	}{
		"no such host": {&net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}, "cannot be reached: no such host"},
		"no DNS":       {&net.DNSError{Err: "server misbehaving", Name: "x", Server: "10.0.0.10:53", IsTimeout: true}, "cannot be reached: its name cannot be looked up"},
		"no route":     {&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, "cannot be reached: no route to host"},
		"timeout":      {context.DeadlineExceeded, "does not answer in time"},
		"anything":     {errors.New("surprise"), "its answer cannot be understood"},
	}
	for name, test := range tests {
		if got := classify(test.err); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
