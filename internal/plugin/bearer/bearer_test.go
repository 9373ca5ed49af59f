package bearer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// server is one with auth.
func server(auth *mcpv1alpha1.Auth) *mcpv1alpha1.MCPServer {
	found := &mcpv1alpha1.MCPServer{}
	found.Spec.Auth = auth
	found.Status.Address = &mcpv1alpha1.Address{URL: "http://tickets.support.svc/mcp"}
	return found
}

func TestAudiences(t *testing.T) {
	resources := []mcpv1alpha1.ResourceURL{"https://tickets.example.com/mcp", "https://other.example.com/mcp"}
	for name, test := range map[string]struct {
		auth *mcpv1alpha1.Auth
		want []string
	}{
		"the address":  {&mcpv1alpha1.Auth{Kubernetes: &mcpv1alpha1.KubernetesAuth{}}, []string{"http://tickets.support.svc/mcp"}},
		"no source":    {&mcpv1alpha1.Auth{Mode: mcpv1alpha1.AuthModeServer}, []string{"http://tickets.support.svc/mcp"}},
		"resources":    {&mcpv1alpha1.Auth{Resources: resources, Kubernetes: &mcpv1alpha1.KubernetesAuth{}}, []string{"https://tickets.example.com/mcp", "https://other.example.com/mcp"}},
		"of their own": {&mcpv1alpha1.Auth{Resources: resources, Kubernetes: &mcpv1alpha1.KubernetesAuth{Audiences: []mcpv1alpha1.Audience{"tickets"}}}, []string{"tickets"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Audiences(server(test.auth))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := Audiences(&mcpv1alpha1.MCPServer{}); got != nil {
		t.Errorf("a server without an address has %q", got)
	}
}

// source is one whose token or error a test chooses.
type source struct {
	token   string
	err     error
	refused []string
}

func (s *source) Token(context.Context) (string, error) { return s.token, s.err }
func (s *source) Refused(token string)                  { s.refused = append(s.refused, token) }
func (*source) String() string                          { return "alice" }

// The server sees the token of the source and no other, and what the client sent stays as it is.
func TestTransport(t *testing.T) {
	var seen []http.Header
	status := http.StatusOK
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header)
		w.WriteHeader(status)
	}))
	defer backend.Close()
	from := &source{token: "of-the-source"}
	client := &http.Client{Transport: &Transport{RoundTripper: backend.Client().Transport, Source: from}}
	for _, status = range []int{http.StatusOK, http.StatusForbidden, http.StatusUnauthorized} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, backend.URL, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header["Authorization"] = []string{"Bearer of-the-client", "Bearer another"}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if diff := cmp.Diff([]string{"Bearer of-the-source"}, seen[len(seen)-1]["Authorization"]); diff != "" {
			t.Errorf("the server sees (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"Bearer of-the-client", "Bearer another"}, request.Header["Authorization"]); diff != "" {
			t.Errorf("the client's request (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff([]string{"of-the-source"}, from.refused); diff != "" {
		t.Errorf("after one answer 401, refused (-want +got):\n%s", diff)
	}
}

// Without a token, nothing is sent, and the error says whose it would be.
func TestTransportWithoutToken(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request came") }))
	defer backend.Close()
	body := &closing{Reader: strings.NewReader("{}")}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, backend.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("no API server")
	response, err := (&Transport{RoundTripper: backend.Client().Transport, Source: &source{err: cause}}).RoundTrip(request)
	if response != nil {
		_ = response.Body.Close()
	}
	if !errors.Is(err, cause) || err.Error() != "get the token of alice: no API server" {
		t.Errorf("error %v", err)
	}
	if !body.isClosed {
		t.Error("the body of the request is open")
	}
}

type closing struct {
	io.Reader
	isClosed bool
}

func (c *closing) Close() error {
	c.isClosed = true
	return nil
}

// A client that closes idle connections closes those below: they may lead to a pod that is gone.
func TestCloseIdleConnections(t *testing.T) {
	connections := map[string]bool{}
	backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { connections[r.RemoteAddr] = true }))
	defer backend.Close()
	client := &http.Client{Transport: &Transport{RoundTripper: &http.Transport{}, Source: &source{token: "x"}}}
	for range 2 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, backend.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		client.CloseIdleConnections()
	}
	if len(connections) != 2 {
		t.Errorf("%d connections, want one for each request", len(connections))
	}
}

// What a source is called has no token in it, however it is printed.
func TestNames(t *testing.T) {
	given, err := FromEnvironment(func(string) string { return "secret-token" })
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%s", "%v", "%+v", "%q"} {
		if got := fmt.Sprintf(format, given); strings.Contains(got, "secret-token") {
			t.Errorf("%s prints %s", format, got)
		}
	}
}
