//go:build conformance

// Package everything puts the reference server with every feature of the protocol
// behind the adapter, and has the official client use them all, at each revision.
// It needs npm and Node.js, so it runs with the conformance suite.
package everything

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/front/sse"
	"github.com/slipway-mcp/slipway/test/adapter"
	"github.com/slipway-mcp/slipway/test/hang"
)

// TestStreamableHTTP runs the adapter as a process, as people do.
func TestStreamableHTTP(t *testing.T) {
	server := install(t)
	url := adapter.Serve(t, server...)
	for _, revision := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			exercise(t, server, revision, func() mcp.Transport {
				return &mcp.StreamableClientTransport{Endpoint: url}
			})
		})
	}
}

// TestHTTPSSE runs the transport of revision 2024-11-05, with processes but none of
// its own. It serves later revisions too (E-07).
func TestHTTPSSE(t *testing.T) {
	server := install(t)
	endpoint := newEndpoint(t, server...)
	t.Run("revisions", func(t *testing.T) {
		for _, revision := range []string{"2024-11-05", "2025-11-25"} {
			t.Run(revision, func(t *testing.T) {
				t.Parallel()
				exercise(t, server, revision, func() mcp.Transport {
					return &mcp.SSEClientTransport{Endpoint: endpoint.url + sse.StreamPath}
				})
			})
		}
	})
	// E-06, S-06: with its timers running this server ignores the end of its input.
	g := gomega.NewWithT(t)
	g.Eventually(endpoint.sessions.Len).WithTimeout(hang.Guard).Should(gomega.BeZero(), "sessions")
	g.Eventually(endpoint.pool.Metrics().Running.Load).WithTimeout(hang.Guard).Should(gomega.BeZero(), "processes")
	if starts, crashes := endpoint.pool.Metrics().Starts.Load(), endpoint.pool.Metrics().Crashes.Load(); starts != 4 || crashes != 0 {
		t.Errorf("%d processes started and %d crashed, want 4 and none", starts, crashes)
	}
}

// TestStateless lets a client of the stateless revision use the server, which does not know
// that revision (B-04). Messages of the server outside of any call reach no client (B-06).
func TestStateless(t *testing.T) {
	url := adapter.ServeWith(t, []string{"--offer-roots", "--stateless-clients", "Translate"}, install(t)...)
	c := connect(t, "2026-07-28", &mcp.StreamableClientTransport{Endpoint: url})
	for _, feature := range []struct {
		name string
		test func(*testing.T, *client)
	}{
		{"tools", tools},
		{"I-02 sampling", sampling},
		{"I-02 elicitation", elicitation},
		{"U-05 progress", progress},
		{"M-09 cancellation", cancellation},
		{"B-04 a tool that only runs as a task", task},
	} {
		t.Run(feature.name, func(t *testing.T) { feature.test(t, c) })
	}
}

// task: the tool takes a few seconds in stages, and refuses to be called without a task.
func task(t *testing.T, c *client) {
	wantIn(t, c.call(t, "simulate-research-query", map[string]any{"topic": "slipways"}), "slipways")
}

// exercise uses every feature. A second client looks on: the server keeps its state
// for the one client it believes to have, so whatever reaches the second shows that
// they share more than the adapter (Q-04, R23, R55).
func exercise(t *testing.T, server []string, revision string, transport func() mcp.Transport) {
	bystander := connect(t, revision, transport())
	c := connect(t, revision, transport())
	for _, feature := range []struct {
		name string
		test func(*testing.T, *client)
	}{
		{"Q-03 request outside any call", rootsUnasked},
		{"tools", tools},
		{"Q-02 sampling", sampling},
		{"Q-02 elicitation", elicitation},
		{"roots", roots},
		{"U-05 progress", progress},
		{"U-02 cancellation", cancellation},
		{"R29 resource updates", resourceUpdates},
		{"U-06 logging", logging},
	} {
		t.Run(feature.name, func(t *testing.T) { feature.test(t, c) })
	}
	t.Run("J-23 same lists without the adapter", func(t *testing.T) {
		direct := connect(t, revision, &mcp.CommandTransport{
			Command:           exec.CommandContext(context.WithoutCancel(t.Context()), server[0], server[1:]...),
			TerminateDuration: 500 * time.Millisecond, // it does not end by itself
		})
		if diff := cmp.Diff(lists(t, direct), lists(t, c)); diff != "" {
			t.Errorf("without the adapter (-) and with it (+):\n%s", diff)
		}
	})
	t.Run("R55 bystander", func(t *testing.T) {
		rootsUnasked(t, bystander)
		for name, n := range map[string]int{"progress": len(bystander.progress), "update": len(bystander.updated), "message": len(bystander.logged)} {
			if n != 0 {
				t.Errorf("it got %d notifications: %s", n, name)
			}
		}
		for _, toggle := range []string{"toggle-subscriber-updates", "toggle-simulated-logging"} {
			wantIn(t, bystander.call(t, toggle, nil), "Started")
		}
	})
}

// rootsUnasked: the server asks for roots a moment after it was initialized, when
// no call is there that the question could travel with.
func rootsUnasked(t *testing.T, c *client) {
	wantIn(t, receive(t, c.logged), "Roots updated: 1 root(s)")
}

func tools(t *testing.T, c *client) {
	wantIn(t, c.call(t, "echo", map[string]any{"message": "grüß dich 🚢"}), "Echo: grüß dich 🚢")
	wantIn(t, c.call(t, "get-sum", map[string]any{"a": 2, "b": 40.5}), "is 42.5.")
	wantIn(t, c.call(t, "get-tiny-image", nil), "image/png")
	wantIn(t, c.call(t, "get-structured-content", map[string]any{"location": "Chicago"}), `"temperature"`)
}

func sampling(t *testing.T, c *client) {
	wantIn(t, c.call(t, "trigger-sampling-request", map[string]any{"prompt": "why?", "maxTokens": 7}), "sampled: Resource trigger-sampling-request context: why?", `"test-model"`)
}

func elicitation(t *testing.T, c *client) {
	wantIn(t, c.call(t, "trigger-elicitation-request", nil), "User provided the requested information", "Name: Ada")
}

func roots(t *testing.T, c *client) {
	wantIn(t, c.call(t, "get-roots-list", nil), "1 total", "file:///one")
	c.addRoot("two")
	wantIn(t, receive(t, c.logged), "Roots updated: 2 root(s)")
	wantIn(t, c.call(t, "get-roots-list", nil), "2 total", "file:///two")
}

func progress(t *testing.T, c *client) {
	wantIn(t, c.call(t, "trigger-long-running-operation", map[string]any{"duration": 1, "steps": 4}), "completed", "Steps: 4")
	for step := range 4 {
		if got := receive(t, c.progress); got.ProgressToken != "token of trigger-long-running-operation" || got.Progress != float64(step+1) || got.Total != 4 {
			t.Errorf("got %+v, want step %d", got, step+1)
		}
	}
}

func cancellation(t *testing.T, c *client) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		params := &mcp.CallToolParams{Name: "trigger-long-running-operation", Arguments: map[string]any{"duration": 20, "steps": 200}}
		params.SetProgressToken("to be cancelled")
		_, err := c.session.CallTool(ctx, params)
		failed <- err
	}()
	receive(t, c.progress) // it runs
	cancel()
	if err := receive(t, failed); err == nil {
		t.Error("a call that was cancelled returned a result")
	}
	wantIn(t, c.call(t, "echo", map[string]any{"message": "goes on"}), "goes on")
}

// resourceUpdates: the first one arrives during a call, the next 5 s later.
func resourceUpdates(t *testing.T, c *client) {
	const uri = "demo://resource/dynamic/text/1"
	read, err := c.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
	if err != nil || len(read.Contents) != 1 || !strings.Contains(read.Contents[0].Text, "Resource 1") {
		t.Errorf("read: %+v, %v", read, err)
	}
	if err := c.session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	wantIn(t, receive(t, c.logged), "Received Subscribe", uri)
	wantIn(t, c.call(t, "toggle-subscriber-updates", nil), "Started")
	for range 2 {
		wantIn(t, receive(t, c.updated), uri)
	}
	if err := c.session.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: uri}); err != nil {
		t.Errorf("unsubscribe: %v", err)
	}
	wantIn(t, receive(t, c.logged), "Received Unsubscribe", uri)
	wantIn(t, c.call(t, "toggle-subscriber-updates", nil), "Stopped")
}

// logging: like updates, the first message arrives during a call, the next 5 s later.
func logging(t *testing.T, c *client) {
	c.setLevel(t, "debug")
	wantIn(t, c.call(t, "toggle-simulated-logging", nil), "Started")
	for range 2 {
		wantIn(t, receive(t, c.logged), "level", "message")
	}
	wantIn(t, c.call(t, "toggle-simulated-logging", nil), "Stopped")
}

// lists is all that a server offers, in comparable form.
func lists(t *testing.T, c *client) map[string]any {
	t.Helper()
	all := map[string]any{}
	add := func(name string, list any, err error) {
		t.Helper()
		text, marshalErr := json.Marshal(list)
		if err != nil || marshalErr != nil {
			t.Fatalf("list %s: %v, %v", name, err, marshalErr)
		}
		var plain any
		if err := json.Unmarshal(text, &plain); err != nil {
			t.Fatalf("list %s: %v", name, err)
		}
		all[name] = plain
	}
	toolList, err := c.session.ListTools(t.Context(), nil)
	add("tools", toolList, err)
	resources, err := c.session.ListResources(t.Context(), nil)
	add("resources", resources, err)
	templates, err := c.session.ListResourceTemplates(t.Context(), nil)
	add("templates", templates, err)
	prompts, err := c.session.ListPrompts(t.Context(), nil)
	add("prompts", prompts, err)
	add("initialize", c.session.InitializeResult(), nil)
	return all
}

func wantIn(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("got %.500s, want %q in it", text, part)
		}
	}
}
