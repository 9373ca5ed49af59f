//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// caller is a client of the official SDK with a session.
type caller struct {
	*mcp.ClientSession
	progress chan float64
}

// open opens a session through the Service, by its name.
func open(ctx context.Context, server *mcpv1alpha1.MCPServer) *caller {
	GinkgoHelper()
	c, err := tryOpen(ctx, server)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// tryOpen is open for those who expect that it may fail. The client can do everything
// that a server may ask for.
func tryOpen(ctx context.Context, server *mcpv1alpha1.MCPServer) (*caller, error) {
	return gate.tryOpenAs(ctx, server, "2025-11-25") // the next one has no sessions
}

// openStateless is a client of the revision without sessions, through the Service.
func openStateless(ctx context.Context, server *mcpv1alpha1.MCPServer) *caller {
	GinkgoHelper()
	c, err := gate.tryOpenAs(ctx, server, "2026-07-28")
	Expect(err).NotTo(HaveOccurred())
	return c
}

// tryOpenAs is tryOpen for a client of one revision that comes this way.
func (g *wayIn) tryOpenAs(ctx context.Context, server *mcpv1alpha1.MCPServer, revision string) (*caller, error) {
	c := &caller{progress: make(chan float64, 1000)}
	sdk := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, &mcp.ClientOptions{
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: "assistant", Model: "e2e", Content: &mcp.TextContent{Text: "forty-two"}}, nil
		},
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada", "check": true, "username": "ada", "email": "ada@example.com"}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { c.progress <- r.Params.Progress },
	})
	session, err := sdk.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: server.Status.Address.URL, HTTPClient: g.httpClient()},
		&mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		return nil, err
	}
	c.ClientSession = session
	DeferCleanup(func() { _ = session.Close() }) // it may be gone, with its pod
	return c, nil
}

// call calls a tool and returns everything that it answers, as JSON.
func (c *caller) call(ctx context.Context, tool string, arguments map[string]any) string {
	GinkgoHelper()
	text, err := c.tryCall(ctx, tool, arguments)
	Expect(err).NotTo(HaveOccurred())
	return text
}

func (c *caller) tryCall(ctx context.Context, tool string, arguments map[string]any) (string, error) {
	if arguments == nil {
		arguments = map[string]any{}
	}
	params := &mcp.CallToolParams{Name: tool, Arguments: arguments}
	params.SetProgressToken("of " + tool)
	result, err := c.CallTool(ctx, params)
	if err != nil {
		return "", err
	}
	if len(result.Content) == 1 {
		if text, ok := result.Content[0].(*mcp.TextContent); ok {
			return text.Text, nil
		}
	}
	text, err := json.Marshal(result.Content)
	return string(text), err
}

// outcome is how a call ended, and when.
type outcome struct {
	text string
	err  error
	at   time.Time
}

// sleep has the echo server sleep, in the background, and returns when it does.
func (c *caller) sleep(ctx context.Context, d time.Duration) <-chan outcome {
	GinkgoHelper()
	ended := make(chan outcome, 1)
	go func() {
		text, err := c.tryCall(ctx, "sleep", map[string]any{"ms": d.Milliseconds(), "text": "asleep"})
		ended <- outcome{text, err, time.Now()}
	}()
	Eventually(c.progress).WithContext(ctx).Should(Receive())
	return ended
}
