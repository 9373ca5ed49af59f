package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/test/hang"
)

// memory is a log that is kept.
type memory struct {
	mu    sync.Mutex
	lines []string
}

func (m *memory) logger() logr.Logger {
	return funcr.NewJSON(func(line string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.lines = append(m.lines, line)
	}, funcr.Options{Verbosity: 5})
}

// with are the lines of a message.
func (m *memory) with(message string) (lines []map[string]any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, text := range m.lines {
		var line map[string]any
		if json.Unmarshal([]byte(text), &line) == nil && line["msg"] == message {
			lines = append(lines, line)
		}
	}
	return lines
}

func (m *memory) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.lines, "\n")
}

// A person who reads the log can follow a session by its number, and cannot use the session
// with what is in the log.
func TestSessionsAreLogged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*config.Config)
		call   string // what ends the session
		died   string // what is said of its process
		reason string // what is said of the session
	}{
		"the process dies":       {nil, `{"name":"exit","arguments":{"n":3}}`, "the server's process ended: exit code 3", "the server's process ended: exit code 3"},
		"by a signal":            {nil, `{"name":"kill","arguments":{}}`, "the server's process ended: signal 9 (killed)", "the server's process ended: signal 9 (killed)"},
		"idle":                   {func(c *config.Config) { c.IdleTimeout = time.Second }, "", "", "the session was idle for too long (1s)"},
		"an idle shared process": {func(c *config.Config) { c.Shared, c.IdleTimeout = true, time.Second }, "", "", "the session was idle for too long (1s)"},
		"an idle proxy": {func(c *config.Config) {
			server := countingServer()
			c.Transport, c.IdleTimeout = config.StreamableHTTP, time.Second
			c.UpstreamURL = serveHTTP(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
		}, "", "", "the session was idle for too long (1s)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &memory{}
			_, url := startAdapter(t, func(c *config.Config) {
				if test.change != nil {
					test.change(c)
				}
				c.Log = log.logger()
			})
			c, err := newClient(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			if test.call != "" {
				response, err := c.post(t.Context(), `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":`+test.call+`}`)
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
			}
			g := gomega.NewWithT(t)
			g.Eventually(func() int { return len(log.with("Session ended")) }).WithTimeout(hang.Guard).Should(gomega.Equal(1))
			opened, ended := log.with("Session opened"), log.with("Session ended")
			if len(opened) != 1 || opened[0]["level"] != 0. || opened[0]["session"] == "" || opened[0]["session"] != ended[0]["session"] {
				t.Errorf("opened %v, ended %v", opened, ended)
			}
			if opened[0]["client"] != "c" || opened[0]["clientVersion"] != "1" || opened[0]["revision"] != "2025-11-25" {
				t.Errorf("opened %v, which does not say by whom", opened)
			}
			if ended[0]["level"] != 1. || ended[0]["reason"] != test.reason || ended[0]["lasted"] == "" {
				t.Errorf("ended %v, want %q", ended, test.reason)
			}
			died := log.with("Server process of a session ended")
			switch {
			case test.died == "" && len(died) > 0:
				t.Errorf("died: %v", died)
			case test.died != "" && (len(died) != 1 || died[0]["level"] != 0. || died[0]["session"] != ended[0]["session"] || died[0]["reason"] != test.died):
				t.Errorf("died: %v, want %q", died, test.died)
			}
			if text := log.text(); strings.Contains(text, c.session) || strings.Contains(text, "told to exit") {
				t.Errorf("too much is in the log:\n%s", text)
			}
		})
	}
}

// Clients of 2024-11-05 connect before they say who they are.
func TestSessionsOfSSEAreLogged(t *testing.T) {
	t.Parallel()
	log := &memory{}
	_, url := startAdapter(t, func(c *config.Config) { c.LegacySSE, c.Log = true, log.logger() })
	client, err := mcp.NewClient(&mcp.Implementation{Name: "old", Version: "7"}, nil).
		Connect(t.Context(), &mcp.SSEClientTransport{Endpoint: strings.TrimSuffix(url, Path) + "/sse"}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-06-18"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	gomega.NewWithT(t).Eventually(func() int { return len(log.with("Session initialized")) }).WithTimeout(hang.Guard).Should(gomega.Equal(1))
	opened, initialized := log.with("Session opened"), log.with("Session initialized")[0]
	if len(opened) != 1 || opened[0]["level"] != 0. || opened[0]["session"] == "" || opened[0]["session"] != initialized["session"] {
		t.Errorf("opened %v, initialized %v", opened, initialized)
	}
	if initialized["level"] != 0. || initialized["client"] != "old" || initialized["clientVersion"] != "7" || initialized["asksFor"] != "2025-06-18" {
		t.Errorf("initialized %v", initialized)
	}
}

// A client cannot write what it likes to the log.
func TestWhatClientsSayIsShown(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"plain":   {"inspector", "inspector"},
		"lines":   {"a\nb\x1b[2Jc\u202e", "a b\uFFFD[2Jc\uFFFD"},
		"long":    {strings.Repeat("x", 5000), strings.Repeat("x", 64) + "…"},
		"runes":   {strings.Repeat("€", 100), strings.Repeat("€", 21) + "…"},
		"invalid": {"a\xff", "a\uFFFD"},
	} {
		if got := legible(test.text); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// What net/http logs is a line of the adapter's log, and no text among them.
func TestHTTPServerIsLogged(t *testing.T) {
	t.Parallel()
	log := &memory{}
	cfg := config.Defaults()
	cfg.Log, cfg.Keys, cfg.DrainTimeout = log.logger(), newKeys(t), 0
	cfg.Transport, cfg.UpstreamURL = config.StreamableHTTP, serveHTTP(t, http.NotFoundHandler())
	adapter := New(nil, cfg)
	adapter.clients.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("at the disco") })
	clients := newListener(t)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- adapter.Serve(ctx, Ports{Clients: clients, Admin: newListener(t)}) }()
	if response, err := http.Get("http://" + clients.Addr().String()); err == nil {
		_ = response.Body.Close()
		t.Errorf("got %s", response.Status)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	lines := log.with("The HTTP server has a problem")
	if len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0]["text"]), "at the disco") {
		t.Errorf("logged are %v", lines)
	}
}
