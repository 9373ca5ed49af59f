package plugin

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/plugin/bearer"
	"github.com/slipway-mcp/slipway/test/hang"
)

// given is a token of the user.
func given(t *testing.T, token string) bearer.Source {
	t.Helper()
	source, err := bearer.FromEnvironment(func(string) string { return token })
	if err != nil || source == nil {
		t.Fatalf("%v, %v", source, err)
	}
	return source
}

// reply is what a client on this machine gets.
type reply struct {
	status          int
	challenge, body string
}

// ask asks as a local client with a token of its own does.
func ask(t *testing.T, url string) reply {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer of-the-client")
	response, err := (&http.Client{Timeout: hang.Guard}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{response.StatusCode, response.Header.Get("WWW-Authenticate"), string(body)}
}

// choosy is a server that accepts one token, and says which one came.
func choosy(accepted string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came := strings.Join(r.Header["Authorization"], ", ")
		if came != "Bearer "+accepted {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = io.WriteString(w, r.URL.Path+" "+came)
	})
}

// A port adds the token of the user, if there is one, and leaves that of the client otherwise.
func TestLoopbackTokens(t *testing.T) {
	for name, test := range map[string]struct {
		tokens   bearer.Source
		accepted string
		want     reply
	}{
		"ours":              {given(t, "ours"), "ours", reply{200, "", "/mcp Bearer ours"}},
		"ours, refused":     {given(t, "ours"), "other", reply{403, "", "/mcp Bearer ours"}}, // 401 would have the client log in
		"that of a client":  {nil, "of-the-client", reply{200, "", "/mcp Bearer of-the-client"}},
		"a client, refused": {nil, "other", reply{401, "Bearer", "/mcp Bearer of-the-client"}},
	} {
		t.Run(name, func(t *testing.T) {
			local, err := listen(t.Context(), withTokens(toServer{choosy(test.accepted)}, test.tokens), 0, test.tokens != nil)
			if err != nil {
				t.Fatal(err)
			}
			defer local.close()
			if diff := cmp.Diff(test.want, ask(t, local.url), cmp.AllowUnexported(reply{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Where the system does not say whose a connection is, a client must know the address.
func TestLoopbackWithoutPeers(t *testing.T) {
	server := &http.Server{Handler: guard(proxy(toServer{choosy("of-the-client")}, true))}
	prefix := keepPrivate(server, false)
	if len(prefix) < 20 {
		t.Errorf("%q can be guessed", prefix)
	}
	local := httptest.NewServer(server.Handler)
	defer local.Close()
	for path, want := range map[string]reply{
		prefix + "/mcp":        {200, "", "/mcp Bearer of-the-client"},
		"/mcp":                 {404, "", "404 page not found\n"},
		"/x" + prefix + "/mcp": {404, "", "404 page not found\n"},
	} {
		if diff := cmp.Diff(want, ask(t, local.URL+path), cmp.AllowUnexported(reply{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}
