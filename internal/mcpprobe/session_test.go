package mcpprobe

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// targets are ways to reach one and the same real server.
func targets(t *testing.T) map[string]struct {
	target  Target
	options Options
	version string
} {
	t.Helper()
	sse := mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return realServer() }, nil)
	return map[string]struct {
		target  Target
		options Options
		version string
	}{
		"P-01 HTTP, newer era":          {HTTP(serveHTTP(t, realServer(), &mcp.StreamableHTTPOptions{Stateless: true}), nil), Options{}, versionModern},
		"L-33 HTTP with sessions":       {HTTP(serveHTTP(t, realServer(), nil), nil), Options{}, versionLegacy},
		"P-02 HTTP, initialize":         {HTTP(serveHTTP(t, realServer(), nil), nil), Options{SkipDiscover: true}, versionLegacy},
		"P-04 HTTP, answers in JSON":    {HTTP(serveHTTP(t, realServer(), &mcp.StreamableHTTPOptions{JSONResponse: true}), nil), Options{}, versionLegacy},
		"P-03 SSE":                      {SSE(serve(t, sse), nil), Options{}, versionLegacy},
		"L-29 process, newer era":       {realProcess(t, realServer()), Options{}, versionModern},
		"B-02 process, era by decision": {realProcess(t, realServer()), Options{SkipDiscover: true}, versionLegacy},
	}
}

func TestProbeTakesTheWholeCatalog(t *testing.T) {
	for name, test := range targets(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			catalog, err := Probe(withPatience(t), test.target, test.options)
			if err != nil {
				t.Fatalf("Probe: %v", err)
			}
			checkRealCatalog(t, catalog, test.version)
		})
	}
}

func checkRealCatalog(t *testing.T, catalog *Catalog, version string) {
	t.Helper()
	server := catalog.Server
	server.ProtocolVersions = nil
	want := Server{Name: "real", Title: "Real", Version: "1.2.3", ProtocolVersion: version, Instructions: "Be kind."}
	if diff := cmp.Diff(want, server); diff != "" {
		t.Errorf("server (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Counts{Tools: 5, Prompts: 1, Resources: 3, ResourceTemplates: 1}, catalog.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if got := toolNames(catalog); got != "ant bee mole yak zebra" {
		t.Errorf("tools: got %s, want them sorted", got)
	}
	if got := string(catalog.Tools[0].InputSchema); !strings.Contains(got, "9007199254740993") {
		t.Errorf("schema: got %s, want the number as the server wrote it", got)
	}
	if hint := catalog.Tools[0].Annotations.ReadOnlyHint; hint == nil || !*hint {
		t.Error("annotations: got no read-only hint")
	}
	if catalog.Resources[0].URI != "file:///a" || catalog.Resources[0].MIMEType != "text/plain" {
		t.Errorf("resources: got %+v first, want file:///a", catalog.Resources[0])
	}
	if !strings.Contains(string(catalog.Capabilities), `"tools":`) || len(catalog.Excluded) != 0 {
		t.Errorf("got capabilities %s, excluded %v", catalog.Capabilities, catalog.Excluded)
	}
}

func TestDigestIsTheSameOnEveryWay(t *testing.T) {
	want := ""
	for name, test := range targets(t) {
		catalog, err := Probe(withPatience(t), test.target, test.options)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// What was negotiated and can be is a matter of the way.
		catalog.Server.ProtocolVersion, catalog.Server.ProtocolVersions = "", nil
		catalog.Capabilities = []byte(`{}`)
		if err := catalog.finish(); err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = catalog.Digest
		}
		if catalog.Digest != want {
			t.Errorf("%s: got %s, want %s", name, catalog.Digest, want)
		}
	}
}

func TestP02ProbeDeletesItsSession(t *testing.T) {
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return realServer() }, nil)
	var mu sync.Mutex
	var session, deleted, authorization string
	streams := 0
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		mu.Lock()
		defer mu.Unlock()
		switch r.Method {
		case http.MethodDelete:
			deleted, authorization = r.Header.Get("Mcp-Session-Id"), r.Header.Get("Authorization")
		case http.MethodGet:
			streams++
		default:
			if id := w.Header().Get("Mcp-Session-Id"); id != "" {
				session = id
			}
		}
	}))
	header := http.Header{"Authorization": {"Bearer secret"}}
	if _, err := Probe(withPatience(t), HTTP(url, header), Options{}); err != nil {
		t.Fatalf("Probe: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if session == "" || deleted != session || authorization != "Bearer secret" {
		t.Errorf("got session %q, deleted %q with authorization %q", session, deleted, authorization)
	}
	if streams != 0 {
		t.Errorf("got %d GET requests, want none from a probe", streams)
	}
}

func TestChangedFiresAndTheNextCatalogIsNew(t *testing.T) {
	for name, test := range map[string]struct {
		connect func(*testing.T, *mcp.Server) Target
		options Options
	}{
		"process, older era": {realProcess, Options{SkipDiscover: true}},
		"process, newer era": {realProcess, Options{}},
		"HTTP, older era": {func(t *testing.T, server *mcp.Server) Target {
			return HTTP(serveHTTP(t, server, nil), nil)
		}, Options{}},
		"HTTP, newer era": {func(t *testing.T, server *mcp.Server) Target {
			return HTTP(serveHTTP(t, server, &mcp.StreamableHTTPOptions{Stateless: true}), nil)
		}, Options{}},
		"SSE": {func(t *testing.T, server *mcp.Server) Target {
			return SSE(serve(t, mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return server }, nil)), nil)
		}, Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := withPatience(t)
			server := realServer()
			session, err := Connect(ctx, test.connect(t, server), test.options)
			if err != nil {
				t.Fatalf("Connect: %v", err)
			}
			defer session.Close()
			before, err := session.Catalog(ctx)
			if err != nil {
				t.Fatalf("Catalog: %v", err)
			}
			addTool(server, "owl")
			select {
			case <-session.Changed():
			case <-ctx.Done():
				t.Fatal("Changed did not fire")
			}
			after, err := session.Catalog(ctx)
			if err != nil {
				t.Fatalf("Catalog: %v", err)
			}
			if before.Digest == after.Digest || toolNames(after) != "ant bee mole owl yak zebra" {
				t.Errorf("got tools %s, digest changed: %t", toolNames(after), before.Digest != after.Digest)
			}
			if err := session.Ping(ctx); err != nil {
				t.Errorf("Ping: %v", err)
			}
		})
	}
}

func TestPingAndTheEndOfASession(t *testing.T) {
	for name, test := range targets(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := withPatience(t)
			session, err := Connect(ctx, test.target, test.options)
			if err != nil {
				t.Fatalf("Connect: %v", err)
			}
			if err := session.Ping(ctx); err != nil {
				t.Errorf("Ping: %v", err)
			}
			if session.Err() != nil {
				t.Errorf("Err: got %v before the end", session.Err())
			}
			session.Close()
			session.Close()
			<-session.Done()
			wantClass(t, session.Err(), Closed)
			wantClass(t, session.Ping(ctx), Closed)
			_, err = session.Catalog(ctx)
			wantClass(t, err, Closed)
		})
	}
}

func TestS07TheEndOfAProcessIsSeen(t *testing.T) {
	die := make(chan struct{})
	target := process(t, func(stdin io.ReadCloser, stdout io.WriteCloser) {
		go script{}.run(stdin, stdout)
		<-die
		_ = stdout.Close()
	})
	session, err := Connect(withPatience(t), target, Options{})
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	defer session.Close()
	close(die)
	<-session.Done()
	wantClass(t, session.Err(), Closed)
}
