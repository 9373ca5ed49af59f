package sidecar

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/test/hang"
)

// tap keeps every byte that a client is sent.
type tap struct {
	mu    sync.Mutex
	bytes bytes.Buffer
}

func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes.Write(b)
}

func (p *tap) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes.String()
}

// client is an HTTP client whose answers go through the tap.
func (p *tap) client() *http.Client {
	return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		response, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			_ = response.Header.Write(p)
			response.Body = struct {
				io.Reader
				io.Closer
			}{io.TeeReader(response.Body, p), response.Body}
		}
		return response, err
	})}
}

// startLogged starts an adapter and returns what it logs, and what its processes write to
// standard error.
func startLogged(t *testing.T, change func(*config.Config), command ...string) (adapter *Adapter, url string, log *memory, stderr *tap) {
	t.Helper()
	log, stderr = &memory{}, &tap{}
	direct, err := launcher.NewDirect(launcher.Options{Command: command, Stderr: stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := direct.Close(); err != nil {
			t.Errorf("close launcher: %v", err)
		}
	})
	adapter, url = startAdapterBy(t, newListener(t), direct, func(c *config.Config) {
		c.Log = log.logger()
		if change != nil {
			change(c)
		}
	})
	return adapter, url, log, stderr
}

const secret = "postgres://admin:hunter2@db.internal"

// A process writes a secret to its standard error and dies in a call. The client
// learns how the process ended, and not one byte of what it wrote.
func TestStandardErrorStaysInside(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change   func(*config.Config)
		revision string
		sse      bool
	}{
		"streamable":               {nil, "2025-11-25", false},
		"sse":                      {func(c *config.Config) { c.LegacySSE = true }, "2025-11-25", true},
		"shared":                   {func(c *config.Config) { c.Shared = true }, "2025-11-25", false},
		"clients without sessions": {nil, "2026-07-28", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, url, log, stderr := startLogged(t, test.change, echoServer)
			var heard tap
			var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: heard.client(), DisableStandaloneSSE: true}
			if test.sse {
				transport = &mcp.SSEClientTransport{Endpoint: strings.TrimSuffix(url, Path) + "/sse", HTTPClient: heard.client()}
			}
			client, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).
				Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: test.revision})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			if _, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "stderr", Arguments: map[string]any{"text": "Error: connect to " + secret, "n": 1}}); err != nil {
				t.Fatal(err)
			}
			if _, err = client.CallTool(t.Context(), &mcp.CallToolParams{Name: "exit", Arguments: map[string]any{"n": 3}}); err == nil {
				t.Error("a process that dies has answered")
			}
			// A client of SSE may notice the end of its stream before it takes the answer off it.
			gomega.NewWithT(t).Eventually(heard.String).WithTimeout(hang.Guard).Should(gomega.MatchRegexp("process.* ended: exit code 3"))
			_, _ = client.CallTool(t.Context(), &mcp.CallToolParams{Name: "count"}) // in a session that has ended
			if text := heard.String(); strings.Contains(text, "hunter2") || strings.Contains(text, "told to exit") {
				t.Errorf("the client is sent what the process wrote:\n%s", text)
			}
			gomega.NewWithT(t).Eventually(stderr.String).WithTimeout(hang.Guard).Should(gomega.ContainSubstring(secret))
			if text := log.text(); strings.Contains(text, "hunter2") {
				t.Errorf("the adapter repeats in its log what the process wrote:\n%s", text)
			}
		})
	}
}

// A process that dies before it answers says why. The report for the status has it, and
// clients have not.
func TestStandardErrorIsReported(t *testing.T) {
	t.Parallel()
	for name, isShared := range map[string]bool{"per session": false, "shared": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapter, url, log, stderr := startLogged(t, func(c *config.Config) { c.Shared, c.Warm = isShared, 0 },
				"sh", "-c", "read line; echo 'Error: connect to "+secret+"' >&2; exit 3")
			var heard tap
			gomega.NewWithT(t).Eventually(func() string {
				r := httptest.NewRequest(http.MethodGet, adapterapi.PathCatalog, nil)
				_, proof := adapterapi.NewProof(testKey, adapterapi.CatalogSubject(testPodUID), time.Now())
				r.Header.Set(adapterapi.HeaderProof, proof)
				w := httptest.NewRecorder()
				adapter.admin.Handler.ServeHTTP(w, r)
				return w.Body.String()
			}).WithTimeout(hang.Guard).Should(gomega.ContainSubstring(`exit code 3; it wrote on standard error: Error: connect to ` + secret))
			c := &client{url: url, http: heard.client()}
			if _, err := c.messages(t.Context(), initializeBody); err != nil {
				t.Fatal(err)
			}
			if text := heard.String(); !strings.Contains(text, "exit code 3") || strings.Contains(text, "hunter2") {
				t.Errorf("the client is told %s", text)
			}
			if text := log.text(); strings.Contains(text, "hunter2") || !strings.Contains(stderr.String(), secret) {
				t.Errorf("the adapter logs:\n%s", text)
			}
		})
	}
}
