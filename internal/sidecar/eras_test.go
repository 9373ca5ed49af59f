package sidecar

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/test/hang"
)

// sdkClient is a client of the official SDK. Changes of the tools that it is told of are
// put into the channel.
func sdkClient(t *testing.T, url, revision string) (*mcp.ClientSession, chan string) {
	t.Helper()
	changes := make(chan string, 16)
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { changes <- "tools" },
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { changes <- "progress" },
	})
	connected, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connected.Close() })
	return connected, changes
}

// callTool is what a tool says.
func callTool(t *testing.T, in *mcp.ClientSession, name string) string {
	t.Helper()
	result, err := in.CallTool(t.Context(), &mcp.CallToolParams{Name: name})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return result.Content[0].(*mcp.TextContent).Text
}

func expectChange(t *testing.T, changes <-chan string, want string) {
	t.Helper()
	select {
	case got := <-changes:
		if got != want {
			t.Errorf("told of %s, want %s", got, want)
		}
	case <-time.After(hang.Guard):
		t.Fatalf("not told of %s", want)
	}
}

// L-28, B-03, L-35: clients of both eras at one URL, over a server of both. Those without
// sessions share a process, those with have one each, and each hears of the changes in
// its own.
func TestBothEras(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*config.Config){"a process for each session": nil, "one for all": func(c *config.Config) { c.Shared = true }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, url := startAdapterOn(t, newListener(t), change, bothServer)
			one, oneHears := sdkClient(t, url, "")
			old, oldHears := sdkClient(t, url, "2025-11-25")
			two, twoHears := sdkClient(t, url, "")
			for who, revision := range map[*mcp.ClientSession]string{one: "2026-07-28", old: "2025-11-25", two: "2026-07-28"} {
				if got := who.InitializeResult().ProtocolVersion; got != revision {
					t.Fatalf("a client has revision %s, want %s", got, revision)
				}
			}
			pid := callTool(t, one, "pid")
			if callTool(t, two, "pid") != pid || callTool(t, old, "pid") == pid {
				t.Error("processes are not shared as they should be")
			}
			callTool(t, one, "more")
			expectChange(t, oneHears, "tools")
			expectChange(t, twoHears, "tools")
			if got := callTool(t, two, "more1"); got != "more1" {
				t.Errorf("the new tool says %s", got)
			}
			// A client that leaves ends only its own subscription.
			if err := one.Close(); err != nil {
				t.Error(err)
			}
			callTool(t, two, "more")
			expectChange(t, twoHears, "tools")
			callTool(t, old, "more")
			expectChange(t, oldHears, "tools")
			if len(oldHears) > 0 || len(twoHears) > 0 {
				t.Error("a client hears of another process's changes")
			}
		})
	}
}

// M-09, S-10: a client that goes away from a call has cancelled it, at the server itself.
func TestStatelessCancellation(t *testing.T) {
	t.Parallel()
	_, url := startAdapterOn(t, newListener(t), nil, bothServer)
	client, hears := sdkClient(t, url, "")
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		params := &mcp.CallToolParams{Name: "wait"}
		params.SetProgressToken("p")
		_, err := client.CallTool(ctx, params)
		done <- err
	}()
	expectChange(t, hears, "progress")
	leave()
	<-done
	gomega.NewWithT(t).Eventually(func() string { return callTool(t, client, "cancelled") }).WithTimeout(hang.Guard).Should(gomega.Equal("1"))
}

// S-08: the process dies. The call gets an error without the process's last output, which may
// be about another client, and the next call gets a new process.
func TestStatelessDeath(t *testing.T) {
	t.Parallel()
	_, url := startAdapterOn(t, newListener(t), nil, bothServer)
	client, _ := sdkClient(t, url, "")
	pid := callTool(t, client, "pid")
	_, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "exit"})
	if err == nil || !strings.Contains(err.Error(), "exit code 7") || strings.Contains(err.Error(), "secret") {
		t.Errorf("the call fails with %v", err)
	}
	if callTool(t, client, "pid") == pid {
		t.Error("the process has not ended")
	}
}

// B-02, B-03: clients of either era find their own at every server, whatever it speaks.
func TestServersOfOneEra(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		era     sessionless.Era
		shared  bool
		command []string
	}{
		"legacy":                  {sessionless.Auto, false, []string{eraFilter, "legacy", bothServer}},
		"modern":                  {sessionless.Auto, false, []string{eraFilter, "modern", bothServer}},
		"both":                    {sessionless.Auto, false, []string{bothServer}},
		"both, pinned to legacy":  {sessionless.Legacy, false, []string{bothServer}},
		"both, pinned to modern":  {sessionless.Modern, false, []string{bothServer}},
		"echo, which is not ours": {sessionless.Auto, false, []string{echoServer}},
		"legacy, shared":          {sessionless.Auto, true, []string{eraFilter, "legacy", bothServer}},
		"modern, shared":          {sessionless.Auto, true, []string{eraFilter, "modern", bothServer}},
		"both, shared":            {sessionless.Auto, true, []string{bothServer}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, url := startAdapterOn(t, newListener(t), func(c *config.Config) { c.Era, c.Shared = test.era, test.shared }, test.command...)
			for _, revision := range []string{"2026-07-28", "2025-11-25"} {
				client, _ := sdkClient(t, url, revision)
				if got := client.InitializeResult().ProtocolVersion; got != revision {
					t.Errorf("the client has revision %s, want %s", got, revision)
				}
				if got := callTool(t, client, "pid"); got == "" {
					t.Errorf("it says nothing to a client of %s", revision)
				}
			}
		})
	}
}

// The manager's probe opens a session, and does not make the adapter discover which other
// eras the server speaks. If the server is known to have no sessions, the probe opens none.
func TestProbeOfEachEra(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		era      sessionless.Era
		command  []string
		want     string
		modernly uint64 // processes for clients without sessions
	}{
		"both":                   {sessionless.Auto, []string{bothServer}, "2025-11-25", 0},
		"modern, which is known": {sessionless.Modern, []string{eraFilter, "modern", bothServer}, "2026-07-28", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapter, url := startAdapterOn(t, newListener(t), func(c *config.Config) { c.Era = test.era }, test.command...)
			header := http.Header{adapterapi.HeaderProbe: {proofOf(testKey, testPodUID, time.Now())}}
			catalog, err := mcpprobe.Probe(t.Context(), mcpprobe.HTTP(url, header), mcpprobe.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got := catalog.Server.ProtocolVersion; got != test.want || len(catalog.Tools) == 0 {
				t.Errorf("the probe has revision %s and %d tools, want %s", got, len(catalog.Tools), test.want)
			}
			if got := published(t, adapter, "stateless_starts_total")(); got != test.modernly {
				t.Errorf("%d processes for clients without sessions, want %d", got, test.modernly)
			}
			gomega.NewWithT(t).Eventually(func() bool {
				state, _ := adapter.env.Keeper.State()
				return state.Ready
			}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
		})
	}
}

// N-05: clients that listen do not hold up a drain, and calls in flight are waited for.
func TestStatelessDrain(t *testing.T) {
	t.Parallel()
	adapter, url := startAdapterOn(t, newListener(t), nil, bothServer)
	client, hears := sdkClient(t, url, "")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	done := make(chan struct{})
	go func() {
		defer close(done)
		params := &mcp.CallToolParams{Name: "wait"}
		params.SetProgressToken("p")
		_, _ = client.CallTool(ctx, params)
	}()
	expectChange(t, hears, "progress")
	adapter.Drain()
	g := gomega.NewWithT(t)
	g.Eventually(func() error {
		_, err := client.ListTools(t.Context(), nil)
		return err
	}).WithTimeout(hang.Guard).Should(gomega.HaveOccurred())
	select {
	case <-adapter.Drained():
		t.Error("the call in flight was not waited for")
	default:
	}
	leave()
	<-done
	g.Eventually(adapter.Drained()).WithTimeout(hang.Guard).Should(gomega.BeClosed())
}
