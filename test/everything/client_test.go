//go:build conformance

package everything

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/test/hang"
)

// client is the official client, with what it was told so far.
type client struct {
	*mcp.Client
	session  *mcp.ClientSession
	progress chan *mcp.ProgressNotificationParams
	updated  chan string
	logged   chan string
}

// connect connects a client that can do everything, until the test is over.
func connect(t *testing.T, revision string, transport mcp.Transport) *client {
	t.Helper()
	c := &client{
		progress: make(chan *mcp.ProgressNotificationParams, 1000),
		updated:  make(chan string, 1000),
		logged:   make(chan string, 1000),
	}
	c.Client = mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		CreateMessageHandler: sample,
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada", "check": true}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { c.progress <- r.Params },
		ResourceUpdatedHandler:      func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { c.updated <- r.Params.URI },
		LoggingMessageHandler:       func(_ context.Context, r *mcp.LoggingMessageRequest) { c.logged <- fmt.Sprint(r.Params.Data) },
	})
	c.addRoot("one")
	// The connection outlives the test's own context, so that it can be closed in
	// an orderly way.
	session, err := c.Connect(context.WithoutCancel(t.Context()), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	c.session = session
	t.Cleanup(func() {
		err := session.Close()
		if _, terminated := errors.AsType[*exec.ExitError](err); err != nil && !terminated {
			t.Errorf("close: %v", err)
		}
	})
	if got := session.InitializeResult().ProtocolVersion; got != revision {
		t.Fatalf("L-02: agreed on %s, want %s", got, revision)
	}
	return c
}

func sample(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	text, err := json.Marshal(r.Params.Messages[0].Content)
	if err != nil {
		return nil, err
	}
	var prompt mcp.TextContent
	if err := json.Unmarshal(text, &prompt); err != nil {
		return nil, err
	}
	return &mcp.CreateMessageResult{Role: "assistant", Model: "test-model", Content: &mcp.TextContent{Text: "sampled: " + prompt.Text}}, nil
}

func (c *client) addRoot(name string) { c.AddRoots(&mcp.Root{URI: "file:///" + name, Name: name}) }

func (c *client) setLevel(t *testing.T, level mcp.LoggingLevel) {
	t.Helper()
	if err := c.session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: level}); err != nil {
		t.Fatalf("set level: %v", err)
	}
}

// call calls a tool and returns the contents of its result as text.
func (c *client) call(t *testing.T, tool string, arguments map[string]any) string {
	t.Helper()
	params := &mcp.CallToolParams{Name: tool}
	if arguments != nil { // a nil map is not left out
		params.Arguments = arguments
	}
	params.SetProgressToken("token of " + tool)
	result, err := c.session.CallTool(t.Context(), params)
	if err != nil || result.IsError {
		t.Fatalf("call %s: %+v, %v", tool, result, err)
	}
	var text strings.Builder
	for _, content := range result.Content {
		if part, ok := content.(*mcp.TextContent); ok {
			text.WriteString(part.Text + "\n")
			continue
		}
		other, err := json.Marshal(content)
		if err != nil {
			t.Fatalf("call %s: %v", tool, err)
		}
		text.Write(append(other, '\n'))
	}
	return text.String()
}

func receive[T any](t *testing.T, from <-chan T) (received T) {
	t.Helper()
	select {
	case received = <-from:
	case <-time.After(hang.Guard):
		t.Fatalf("nothing arrived within %s", hang.Guard)
	}
	return received
}
