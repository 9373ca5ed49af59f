package registry

import (
	"cmp"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// Behind a proxy no dialer sees the address, but what is written out is recognized.
func TestRefusedBehindProxy(t *testing.T) {
	resolver := patient(Options{})
	resolver.transport = roundTripper(func(request *http.Request) (*http.Response, error) {
		t.Errorf("%s was asked", request.URL)
		return nil, http.ErrServerClosed
	})
	if problem := problemOf(t, resolver, "169.254.169.254/x:y"); problem.Kind != Refused {
		t.Errorf("got %s", problem.Kind)
	}
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusTemporaryRedirect) }
}

func TestRefused(t *testing.T) {
	challenge := func(realm string) pages {
		return pages{"/manifests/1": nil, "/": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}}
	}
	const metadataURL = "http://169.254.169.254/latest/meta-data/"
	token := localhost(serve(t, redirect(metadataURL)))
	for name, test := range map[string]struct {
		reference string // "" is a registry with these pages
		pages     pages
		dns       string
		kind      Kind
		want      string
	}{
		"by address":              {reference: "169.254.169.254/x:y", want: "169.254.169.254"},
		"by address and port":     {reference: "169.254.169.254:80/x:y", want: "169.254.169.254"},
		"by IPv6 address":         {reference: "[fd00:ec2::254]:443/x:y", want: "fd00:ec2::254"},
		"by name":                 {reference: "registry.example/x:y", dns: "169.254.169.254", want: "169.254.169.254"},
		"by name, IPv6":           {reference: "registry.example/x:y", dns: "fe80::1", want: "fe80::1"},
		"redirect":                {pages: pages{"/manifests/1": redirect(metadataURL)}, want: "169.254.169.254"},
		"redirect of the ping":    {pages: pages{"/": redirect(metadataURL)}, want: "169.254.169.254"},
		"redirect to a name":      {pages: pages{"/manifests/1": redirect("http://metadata.example/")}, dns: "169.254.169.254", want: "169.254.169.254"},
		"token server":            {pages: challenge(metadataURL), want: "169.254.169.254"},
		"token server by name":    {pages: challenge("http://metadata.example/"), dns: "169.254.169.254", want: "169.254.169.254"},
		"redirect of token":       {pages: challenge("http://" + token + "/"), want: "169.254.169.254"},
		"token server is no URL":  {pages: challenge("file:///etc/passwd"), kind: Unavailable, want: "token server that is not asked"},
		"token server is private": {pages: challenge("http://10.0.0.1/"), kind: Unavailable, want: "token server that is not asked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := Options{}
			if test.dns != "" {
				options.DNS = fakeDNS(test.dns)
			}
			reference := test.reference
			if reference == "" {
				handler := http.Handler(test.pages)
				if ping, ok := test.pages["/"]; ok {
					handler = ping
				}
				reference = serve(t, handler) + "/tool:1"
			}
			problem := problemOf(t, patient(options), reference)
			if want := cmp.Or(test.kind, Refused); problem.Kind != want || !strings.Contains(problem.Detail, test.want) {
				t.Errorf("got %s, want %s %s", problem.Kind, want, test.want)
			}
		})
	}
}

// A registry outside must not lead to what is inside, nor from TLS to plain HTTP.
func TestRedirectInside(t *testing.T) {
	var seen requests
	inside := serve(t, seen.record(storage()))
	secret := func(host string) corev1.Secret {
		return dockerConfig(t, "right", map[string]any{host: login("tester", canary)})
	}
	for name, test := range map[string]struct {
		to   string
		kind Kind
		want string
	}{
		"address":   {"https://" + inside, Refused, "redirects to 127.0.0.1"},
		"localhost": {"https://" + localhost(inside), Refused, "redirects to localhost"},
		"downgrade": {"http://registry.example:" + port(inside), Unavailable, "from TLS to plain HTTP"},
	} {
		for _, place := range []string{"/v2/", "/v2/tool/manifests/1"} {
			t.Run(name+place, func(t *testing.T) {
				mux := http.NewServeMux()
				mux.HandleFunc("/v2/", func(http.ResponseWriter, *http.Request) {})
				if place != "/v2/" {
					mux.Handle(place, redirect(test.to))
				} else {
					mux = http.NewServeMux()
					mux.Handle(place, redirect(test.to))
				}
				outside := serveTLS(t, mux)
				host := "www.example.com:" + port(outside.URL) // what its certificate is for
				problem := problemOf(t, patient(Options{DNS: fakeDNS("127.0.0.1"), TLS: trusting(outside)}), host+"/tool:1", secret(host))
				if problem.Kind != test.kind || !strings.Contains(problem.Detail, test.want) {
					t.Errorf("got %s, want %s %s", problem.Kind, test.kind, test.want)
				}
			})
		}
	}
	if n := len(seen.list()); n != 0 {
		t.Errorf("what is inside was asked %d times", n)
	}
}
