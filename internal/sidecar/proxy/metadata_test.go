package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote"
)

// metadataOf serves the metadata of a server with its endpoint at some path and query, and
// returns the URL of the root form.
func metadataOf(t *testing.T, b *backend, endpoint string) string {
	t.Helper()
	at, err := url.Parse("http://user:password@" + b.Address + endpoint)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(edgetest.Door(Metadata(at, "/mcp"), admitExamples))
	t.Cleanup(front.Close)
	return front.URL + MetadataPath
}

func askMetadata(t *testing.T, method, url string, headers ...string) (response *http.Response, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("a body"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		}
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err = http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(read)
}

// publisher answers with the path and query that it was asked for, in a document.
func publisher(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "max-age=60")
	w.Header().Set("Set-Cookie", "a=b")
	_, _ = io.WriteString(w, " {\"resource\" : \""+r.URL.RequestURI()+"\"}\n")
}

// The metadata of a path is the server's own for the path that it has.
func TestMetadataPaths(t *testing.T) {
	for name, test := range map[string]struct{ endpoint, root, path string }{
		"the same path":    {"/mcp", MetadataPath, MetadataPath + "/mcp"},
		"another path":     {"/api/v1/mcp", MetadataPath, MetadataPath + "/api/v1/mcp"},
		"root":             {"/", MetadataPath, MetadataPath},
		"no path":          {"", MetadataPath, MetadataPath},
		"slash at the end": {"/mcp/", MetadataPath, MetadataPath + "/mcp/"},
		"query":            {"/mcp?tenant=a", MetadataPath, MetadataPath + "/mcp?tenant=a"},
		"escapes":          {"/a%2fb/c%20d", MetadataPath, MetadataPath + "/a%2fb/c%20d"},
	} {
		t.Run(name, func(t *testing.T) {
			at := metadataOf(t, newBackend(t, http.HandlerFunc(publisher)), test.endpoint)
			for url, want := range map[string]string{at: test.root, at + "/mcp": test.path, at + "/mcp?tenant=evil": test.path} {
				response, body := askMetadata(t, "GET", url)
				if want := " {\"resource\" : \"" + want + "\"}\n"; response.StatusCode != 200 || body != want {
					t.Errorf("%s: %s, got %q, want %q", url, response.Status, body, want)
				}
			}
		})
	}
}

// A document is for every client, so the server does not learn who asks, and says nothing that
// is for one client.
func TestMetadataHeaders(t *testing.T) {
	b := newBackend(t, http.HandlerFunc(publisher))
	at := metadataOf(t, b, "/mcp")
	for _, method := range []string{"GET", "HEAD"} {
		response, body := askMetadata(t, method, at, "Authorization", "Bearer secret", "Cookie", "session=secret", "Slipway-Probe", "x", "X-Forwarded-Host", "evil", "Origin", "https://chat.example")
		got := response.Header.Clone()
		got.Del("Date")
		want := http.Header{
			"Content-Type": {"application/json; charset=utf-8"}, "Cache-Control": {"max-age=60"}, "Access-Control-Allow-Origin": {"*"},
			"Access-Control-Expose-Headers": {"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"},
			"Vary":                          {"Origin"}, "X-Content-Type-Options": {"nosniff"}, "Content-Length": {"56"},
		}
		if diff := cmp.Diff(want, got); diff != "" || response.StatusCode != 200 || (body == "") != (method == "HEAD") {
			t.Errorf("%s: %s %q, headers (-want +got):\n%s", method, response.Status, body, diff)
		}
	}
	asked := b.Requests("GET")
	if len(asked) != 2 || len(b.Requests("HEAD")) != 0 {
		t.Fatalf("the server was asked %d times", len(asked))
	}
	for _, request := range asked {
		if diff := cmp.Diff(http.Header{"Accept": {"application/json"}, "Accept-Encoding": {"identity"}}, request.Header); diff != "" || request.Host != b.Address {
			t.Errorf("the server gets, for %s (-want +got):\n%s", request.Host, diff)
		}
	}
}

func TestMetadataAcrossOrigins(t *testing.T) {
	b := newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "https://only.example")
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		publisher(w, r)
	}))
	at := metadataOf(t, b, "/mcp")
	response, _ := askMetadata(t, "GET", at)
	if got := response.Header; !slices.Equal(got.Values(headerAllowOrigin), []string{"https://only.example"}) || got.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("the server's own: %v", got)
	}
	response, _ = askMetadata(t, "OPTIONS", at, "Origin", "https://chat.example", "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "mcp-protocol-version")
	if got := response.Header; response.StatusCode != 204 || got.Get(headerAllowOrigin) != "https://chat.example" || got.Get("Access-Control-Allow-Methods") != "GET, HEAD" || got.Get("Access-Control-Allow-Headers") != "mcp-protocol-version" {
		t.Errorf("beforehand: %s, %v", response.Status, got)
	}
	for name, headers := range map[string][]string{"origin": {"Origin", "https://evil.example"}, "host": {"Host", "evil.example"}} {
		if response, body := askMetadata(t, "GET", at, headers...); response.StatusCode != 403 || !strings.Contains(body, "evil.example") {
			t.Errorf("another %s: %s %s", name, response.Status, body)
		}
	}
	if response, _ := askMetadata(t, "POST", at); response.StatusCode != 405 || response.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %s, %v", response.Status, response.Header)
	}
	if asked := len(b.Requests("GET")); asked != 1 || len(b.Requests("POST")) != 0 {
		t.Errorf("the server was asked %d times", asked)
	}
}

// The proxy passes on documents only. If there is none, the client learns why.
func TestMetadataThatIsNone(t *testing.T) {
	for name, test := range map[string]struct {
		answer string
		status int
		want   string
	}{
		"as large as may be": {ok(typeJSON, strings.Repeat("x", metadataBytes), ""), 200, "xxx"},
		"too large":          {ok(typeJSON, strings.Repeat("x", metadataBytes+1), ""), 502, "larger than 65536 bytes"},
		"none":               {"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nevil", 404, "publishes no metadata here: it answers with status 404"},
		"only with a token":  {"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 4\r\n\r\nevil", 404, "status 401"},
		"no content":         {"HTTP/1.1 204 No Content\r\n\r\n", 404, "status 204"},
		"a page":             {ok("text/html", "<script>evil</script>", ""), 404, "not JSON"},
		"no type":            {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", 404, "not JSON"},
		"events":             {ok(typeEvents, "data: evil\n\n", ""), 404, "not JSON"},
		"elsewhere":          {"HTTP/1.1 302 Found\r\nLocation: https://x.example/\r\nContent-Length: 0\r\n\r\n", 502, `redirection to "https://x.example/"`},
		"broken":             {"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\nevil", 502, "status 500"},
		"cut off":            {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\nevil", 502, "unexpected EOF"},
		"not HTTP":           {"SSH-2.0-OpenSSH\r\n\r\n", 502, "cannot get the server"},
	} {
		t.Run(name, func(t *testing.T) {
			response, body := askMetadata(t, "GET", metadataOf(t, newBackend(t, script(test.answer)), "/mcp"))
			if response.StatusCode != test.status || !strings.Contains(body, test.want) || strings.Contains(body, "evil") {
				t.Errorf("got %s: %.200s\nwant %d with %q", response.Status, body, test.status, test.want)
			}
			if got := response.Header; test.status != 200 && got.Get("Content-Type") != "text/plain; charset=utf-8" || got.Get("WWW-Authenticate") != "" {
				t.Errorf("headers %v", got)
			}
		})
	}
	away := newBackend(t, http.NotFoundHandler())
	away.Stop()
	if response, body := askMetadata(t, "GET", metadataOf(t, away, "/mcp")); response.StatusCode != 502 || !strings.Contains(body, "connection refused") {
		t.Errorf("away: %s: %s", response.Status, body)
	}
}

// A server that takes the request and says nothing is not waited for.
func TestMetadataInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := &url.URL{Scheme: "http", Host: "127.0.0.1:3000", Path: "/mcp"}
		m := &metadata{server: remote.NewEndpoint(at), url: at}
		m.server.Transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			return ours, nil
		}
		began := time.Now()
		if _, _, err := m.fetch(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != metadataTimeout {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// Anyone can ask for metadata without a token, so the proxy limits how many requests reach the server at a time.
func TestMetadataAtATime(t *testing.T) {
	entered, let := make(chan struct{}), make(chan struct{})
	b := newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-let
		publisher(w, r)
	}))
	at := metadataOf(t, b, "/mcp")
	statuses := make(chan int)
	for range metadataAtATime {
		go func() {
			response, err := http.Get(at)
			if err != nil {
				statuses <- 0
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			statuses <- response.StatusCode
		}()
		<-entered
	}
	if response, body := askMetadata(t, "GET", at+"/mcp"); response.StatusCode != 503 || response.Header.Get("Retry-After") != "1" {
		t.Errorf("one more: %s: %s", response.Status, body)
	}
	close(let)
	for range metadataAtATime {
		if status := <-statuses; status != 200 {
			t.Errorf("got %d", status)
		}
	}
	go func() { <-entered }()
	if response, body := askMetadata(t, "GET", at); response.StatusCode != 200 || !strings.Contains(body, "resource") {
		t.Errorf("later: %s: %s", response.Status, body)
	}
}
