//go:build bench

package controller

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/promise"
	"github.com/slipway-mcp/slipway/test/hang"
)

var (
	manyServers = flag.Int("servers", 1000, "how many MCPServers to make")
	foreign     = flag.Int("foreign", 0, "how many Secrets and ConfigMaps of others there are, half of them each")
	steady      = flag.Duration("rest", promise.Rest, "how long the manager is watched at rest")
)

// memoryLimit is what the manager stays under, whatever others store in the cluster.
func memoryLimit(servers int) float64 {
	if servers <= 1000 {
		return 200 << 20
	}
	return 400 << 20
}

// TestManyServers measures the manager's own program: its pods are simulated, and one
// stand-in answers for all of their adapters.
func TestManyServers(t *testing.T) {
	if shared.audit == "" {
		t.Fatal("the API server writes no audit log of the manager's requests: run `make bench-controller`, or add -audit")
	}
	g := NewWithT(t)
	namespace := newNamespace(t)
	clients, catalog := newStandIn(t)
	createForeign(t, *foreign)
	manager := startManagerProgram(t)
	// What is there when the manager begins to watch is less urgent to its queue than what
	// comes later, and would wait until nothing else is left.
	g.Eventually(func() int {
		asked, _ := requestsSince(t, 0)
		return asked[call{"watch", "mcpservers"}]
	}).WithTimeout(hang.Guard).Should(Equal(1))

	allReady := watchReady(t, namespace, *manyServers)
	begin := time.Now()
	for i := range *manyServers {
		server := newServer(namespace, fmt.Sprintf("server-%04d", i))
		address := shared.network.Address()
		standIn(t, client.ObjectKeyFromObject(server), address, clients, catalog)
		server.Spec.Image = "localhost:1/simulated-at-" + address + ":1"
		server.Spec.Verification = mcpv1alpha1.Verification{Interval: &metav1.Duration{Duration: 10 * time.Second}}
		create(t, server)
	}
	m := measured{servers: *manyServers, foreign: *foreign, created: time.Since(begin)}
	g.Eventually(allReady).WithTimeout(5*time.Minute + time.Duration(*manyServers)*time.Second).Should(BeClosed())
	m.ready = time.Since(begin)
	m.reached = manager.figures(t)
	var end int64
	m.requests, end = requestsSince(t, 0)

	// At rest: the last answers are written, then nothing is.
	g.Eventually(func() int {
		_, end = requestsSince(t, end)
		time.Sleep(15 * time.Second) // a probe interval and a half, in which a write would show
		late, _ := requestsSince(t, end)
		return sum(late, call.isWrite)
	}).WithTimeout(5 * time.Minute).WithPolling(time.Millisecond).Should(BeZero())
	_, end = requestsSince(t, end)
	m.before = manager.figures(t)
	time.Sleep(*steady) // what is measured is this time
	m.after = manager.figures(t)
	m.atRest, _ = requestsSince(t, end)

	t.Log("\n" + m.String())
	g.Expect(sum(m.atRest, call.isWrite)).To(BeZero(), "writes at rest")
	g.Expect(m.after.peak).To(BeNumerically("<", memoryLimit(*manyServers)), "bytes of memory")
}

// measured is what a run has found out.
type measured struct {
	servers, foreign       int
	created, ready         time.Duration // since the first was asked for
	reached, before, after figures       // when all were ready, and around the rest
	requests, atRest       map[call]int
}

// String is the report, in Markdown.
func (m *measured) String() string {
	n, seconds := float64(m.servers), m.ready.Seconds()
	anything := func(call) bool { return true }
	var text strings.Builder
	fmt.Fprintf(&text, "| %d MCPServers beside %d Secrets and ConfigMaps of others | |\n|---|---|\n", m.servers, m.foreign)
	row := func(name, format string, values ...any) { fmt.Fprintf(&text, "| "+name+" | "+format+" |\n", values...) }
	row("all created", "%.0f s", m.created.Seconds())
	row("all Ready and Verified", "%.0f s after the first was asked for, %.1f a second", seconds, n/seconds)
	row("reconciliations until then", "%.1f a server, %.0f a second, %.0f failed", m.reached.reconciles/n, m.reached.reconciles/seconds, m.reached.failed)
	row("time in the queue", "p50 %s, p95 %s, p99 %s", span(m.reached.waited, 0.5), span(m.reached.waited, 0.95), span(m.reached.waited, 0.99))
	row("time of a reconciliation", "p50 %s, p95 %s, p99 %s", span(m.reached.worked, 0.5), span(m.reached.worked, 0.95), span(m.reached.worked, 0.99))
	row("API requests until then", "%.1f a server, %.1f of them writes", float64(sum(m.requests, anything))/n, float64(sum(m.requests, call.isWrite))/n)
	row("CPU of the manager until then", "%.1f ms a server", 1000*m.reached.cpu/n)
	row("at rest, for "+steady.String(), "%d API requests, %d of them writes; %.1f %% of a core", sum(m.atRest, anything), sum(m.atRest, call.isWrite),
		100*(m.after.cpu-m.before.cpu)/steady.Seconds())
	row("reconciliations at rest", "%.0f", m.after.reconciles-m.before.reconciles)
	row("memory of the manager", "%.0f MiB resident at rest, %.0f MiB at most", m.after.resident/(1<<20), m.after.peak/(1<<20))
	fmt.Fprintf(&text, "\n| request | a server | all | at rest |\n|---|---|---|---|\n")
	for _, asked := range byNumber(m.requests) {
		fmt.Fprintf(&text, "| %s %s | %.2f | %d | %d |\n", asked.verb, asked.resource, float64(m.requests[asked])/n, m.requests[asked], m.atRest[asked])
	}
	return text.String()
}

// span is a time of a histogram, as people read it.
func span(h *dto.Histogram, q float64) string {
	d := time.Duration(atMost(h, q) * float64(time.Second))
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// watchReady follows the servers until as many are Ready and Verified. Listing
// thousands again and again would be most of what the API server does.
func watchReady(t *testing.T, namespace string, count int) (all chan struct{}) {
	t.Helper()
	all = make(chan struct{})
	ready := map[string]bool{}
	go func() {
		for t.Context().Err() == nil {
			watch, err := shared.client.Watch(t.Context(), &mcpv1alpha1.MCPServerList{}, client.InNamespace(namespace))
			if err != nil {
				return // The test times out and fails.
			}
			for event := range watch.ResultChan() {
				server, ok := event.Object.(*mcpv1alpha1.MCPServer)
				if !ok {
					continue
				}
				conditions := server.Status.Conditions
				if meta.IsStatusConditionTrue(conditions, mcpv1alpha1.ConditionReady) && meta.IsStatusConditionTrue(conditions, mcpv1alpha1.ConditionVerified) {
					ready[server.Name] = true
				} else {
					delete(ready, server.Name)
				}
				if len(ready) == count {
					watch.Stop()
					close(all)
					return
				}
			}
		}
	}()
	return all
}

// newStandIn answers for every adapter, with the official SDK's server and a catalog of
// ten tools.
func newStandIn(t *testing.T) (clients http.Handler, catalog http.HandlerFunc) {
	t.Helper()
	offered := mcp.NewServer(&mcp.Implementation{Name: "stand-in", Version: "1"}, nil)
	for i := range 10 {
		mcp.AddTool(offered, &mcp.Tool{Name: fmt.Sprintf("tool-%d", i), Description: strings.Repeat("a tool that does something useful ", 8)},
			func(context.Context, *mcp.CallToolRequest, struct{ Text string }) (*mcp.CallToolResult, any, error) {
				return &mcp.CallToolResult{}, nil, nil
			})
	}
	endpoint := http.NewServeMux()
	endpoint.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return offered }, nil))
	server := httptest.NewServer(endpoint)
	defer server.Close()
	offers, err := mcpprobe.Probe(t.Context(), mcpprobe.HTTP(server.URL+"/mcp", nil), mcpprobe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(offers)
	if err != nil {
		t.Fatal(err)
	}
	report, err := json.Marshal(adapterapi.Report{Ready: true, Catalog: encoded})
	if err != nil {
		t.Fatal(err)
	}
	return endpoint, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		w.Header().Set(adapterapi.HeaderSessions, adapterapi.Sessions{}.String())
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(report)
	}
}
