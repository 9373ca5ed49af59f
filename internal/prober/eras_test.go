package prober

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
)

// oneEra stands before a server that speaks both eras, as an adapter does before the
// manager's probe: what is of the other era is refused.
type oneEra struct {
	modern bool
	server http.Handler

	mu      sync.Mutex
	methods map[string]bool // that reached the server
}

func newOneEra(modern bool) *oneEra {
	server := mcp.NewServer(&mcp.Implementation{Name: "real", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: modern})
	return &oneEra{modern: modern, server: handler, methods: map[string]bool{}}
}

func (o *oneEra) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if r.Method == http.MethodPost {
		envelope, err := rpc.Scan(body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if envelope.Kind == rpc.Request && (envelope.ProtocolVersion != nil) != o.modern {
			front.RefuseRevision(w, envelope.ID.Of(body), string(envelope.ProtocolVersion))
			return
		}
		o.mu.Lock()
		o.methods[string(envelope.Method)] = true
		o.mu.Unlock()
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	o.server.ServeHTTP(w, r)
}

// seen are the requests and notifications that reached the server.
func (o *oneEra) seen() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.methods))
}

// An instance is verified through a session or without one, whichever the adapter has for
// the probe, and the status has the revisions that the adapter says are served.
func TestEitherEraIsVerified(t *testing.T) {
	p := newPods(t)
	prober, _ := p.run(Options{})
	all := []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
	for name, test := range map[string]struct {
		modern bool
		spoken string
		asked  []string
	}{
		"sessions":    {false, "2025-11-25", []string{"initialize", "notifications/initialized", "tools/list"}},
		"no-sessions": {true, "2026-07-28", []string{"server/discover", "tools/list"}},
	} {
		t.Run(name, func(t *testing.T) {
			own := catalogOf(t, allCapabilities, nil)
			own.Server.ProtocolVersion = test.spoken
			catalog, err := own.Serving(all)
			if err != nil {
				t.Fatal(err)
			}
			client := newOneEra(test.modern)
			prober.Watch(serverName(name), []Instance{p.add(name, client, adapter(keeper.State{Ready: true, Stateless: test.modern, Catalog: catalog}))})
			result := eventually(t, prober, name, "verified", func(r Result) bool { return r.Outcome == Verified && r.Catalog != nil })
			if diff := cmp.Diff(test.asked, client.seen()); diff != "" {
				t.Errorf("the server was asked for (-want +got):\n%s", diff)
			}
			summary := result.Catalog.Summary
			if diff := cmp.Diff(append([]string{test.spoken}, all...), append([]string{summary.ServerInfo.ProtocolVersion}, summary.ProtocolVersions...)); diff != "" {
				t.Errorf("revisions (-want +got):\n%s", diff)
			}
			if stored := result.Catalog.Stored; stored == nil || stored.Digest != catalog.Digest {
				t.Errorf("stored: %+v, want the digest %s", stored, catalog.Digest)
			}
		})
	}
}
