package sidecar

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// headerWatch notes the names of all headers that a server gets.
type headerWatch struct {
	http.Handler
	mu    sync.Mutex
	names map[string]bool
}

func (w *headerWatch) ServeHTTP(response http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	for name := range r.Header {
		w.names[name] = true
	}
	w.mu.Unlock()
	w.Handler.ServeHTTP(response, r)
}

func (w *headerWatch) saw(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.names[name]
}

// Architecture §4.5: when every slot is taken, the manager's probe still gets one, and
// clients do not. The server never sees the probe, whichever era it speaks.
func TestProbeHasASlotOfItsOwn(t *testing.T) {
	t.Parallel()
	one := func(server *mcp.Server) func(*http.Request) *mcp.Server {
		return func(*http.Request) *mcp.Server { return server }
	}
	watch := func(handler http.Handler) *headerWatch {
		return &headerWatch{Handler: handler, names: map[string]bool{}}
	}
	streamableServer := watch(mcp.NewStreamableHTTPHandler(one(countingServer()), nil))
	sseServer := watch(mcp.NewSSEHandler(one(countingServer()), nil))
	for name, test := range map[string]struct {
		change   func(*config.Config)
		upstream *headerWatch
	}{
		"a process for each session": {change: func(*config.Config) {}},
		"one process for all":        {change: func(c *config.Config) { c.Shared = true }},
		"streamable-http": {func(c *config.Config) {
			c.Transport, c.UpstreamURL = config.StreamableHTTP, serveHTTP(t, streamableServer)
		}, streamableServer},
		"sse": {func(c *config.Config) { c.Transport, c.UpstreamURL = config.SSE, serveHTTP(t, sseServer) }, sseServer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapter, url := startAdapter(t, func(c *config.Config) {
				c.MaxSessions, c.Patience = 1, 0
				test.change(c)
			})
			client, err := newClient(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer client.http.CloseIdleConnections()
			refused := func(who, token string) {
				t.Helper()
				if _, err := probe(t.Context(), url, token); busyStatus(err) != http.StatusServiceUnavailable {
					t.Errorf("%s: got %v, want 503", who, err)
				}
			}
			refused("a client", "")
			refused("a client with the key itself", testKey.Encode())
			refused("a client with a proof for another pod", proofOf(testKey, "another", time.Now()))
			refused("a client with an old proof", proofOf(testKey, testPodUID, time.Now().Add(-time.Hour)))
			refused("a client with another key", proofOf(adapterapi.NewKey(), testPodUID, time.Now()))
			for range 2 { // the slot is free again after the first
				token := proofOf(testKey, testPodUID, time.Now())
				session, err := probe(t.Context(), url, token)
				if err != nil {
					t.Fatalf("probe: %v", err)
				}
				if catalog, err := session.Catalog(t.Context()); err != nil || len(catalog.Tools) == 0 {
					t.Errorf("catalog: %+v, %v", catalog, err)
				}
				refused("a second probe", token)
				refused("a client during the probe", "")
				checkSessionsCounted(t, adapter, "1")
				session.Close()
			}
			if _, err := client.messages(t.Context(), call(7, "count", "")); err != nil {
				t.Errorf("the client that was there: %v", err)
			}
			if test.upstream != nil && (test.upstream.saw(adapterapi.HeaderProbe) || !test.upstream.saw("Content-Type")) {
				t.Errorf("the server got %v", test.upstream.names)
			}
		})
	}
}

// proofOf is what the manager shows at the client port.
func proofOf(key adapterapi.Key, podUID string, at time.Time) string {
	_, header := adapterapi.NewProof(key, adapterapi.ProbeSubject(podUID), at)
	return header
}

func probe(ctx context.Context, url, token string) (*mcpprobe.Session, error) {
	header := http.Header{}
	if token != "" {
		header.Set(adapterapi.HeaderProbe, token)
	}
	return mcpprobe.Connect(ctx, mcpprobe.HTTP(url, header), mcpprobe.Options{SkipDiscover: true})
}

func busyStatus(err error) int {
	if e, ok := errors.AsType[*mcpprobe.Error](err); ok && e.Class == mcpprobe.Busy {
		return e.Status
	}
	return 0
}

// checkSessionsCounted looks at the two places that tell the number of sessions.
func checkSessionsCounted(t *testing.T, adapter *Adapter, want string) {
	t.Helper()
	get := func(path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		_, proof := adapterapi.NewProof(testKey, adapterapi.CatalogSubject(testPodUID), time.Now())
		r.Header.Set(adapterapi.HeaderProof, proof)
		w := httptest.NewRecorder()
		adapter.admin.Handler.ServeHTTP(w, r)
		return w
	}
	if got := get(adapterapi.PathCatalog).Header().Get(adapterapi.HeaderSessions); !strings.HasPrefix(got, want+"/1/") {
		t.Errorf("catalog: %q sessions, want %s", got, want)
	}
	if text := get(adapterapi.PathMetrics).Body.String(); !strings.Contains(text, "\nslipway_adapter_sessions "+want+"\n") {
		t.Errorf("metrics do not say %s sessions:\n%.2000s", want, text)
	}
}
