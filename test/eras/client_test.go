//go:build conformance

package eras

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/test/hang"
)

// again is after how long a client asks once more for a notification.
const again = 500 * time.Millisecond

// goClient is a client of the official SDK for Go. It does what features.mjs does.
type goClient struct {
	*mcp.ClientSession
	key, revision string
	served        string // what the server believes to speak
	cancel        context.CancelFunc

	mu       sync.Mutex
	progress []string
	changes  int
	updates  []string
}

func useGo(t *testing.T, at address, revision, key string) (got report) {
	t.Helper()
	c := &goClient{key: key, revision: revision}
	if err := c.connect(t.Context(), at); err != nil {
		return report{Connection: err.Error()}
	}
	got.Features = map[string]string{}
	for _, feature := range features {
		got.Features[feature] = ok
		if err := c.use(t.Context(), feature); err != nil {
			got.Features[feature] = err.Error()
		}
	}
	got.Served = c.served
	if err := c.close(); err != nil {
		got.Connection = err.Error()
	}
	return got
}

func (c *goClient) connect(ctx context.Context, at address) error {
	options := &mcp.ClientOptions{
		Capabilities:         &mcp.ClientCapabilities{}, // no roots
		CreateMessageHandler: sample,
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			c.note(func() {
				c.progress = append(c.progress, fmt.Sprintf("%v: %v/%v", r.Params.ProgressToken, r.Params.Progress, r.Params.Total))
			})
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { c.note(func() { c.changes++ }) },
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			c.note(func() { c.updates = append(c.updates, r.Params.URI) })
		},
	}
	if c.revision >= "2025-06-18" { // Earlier ones have no elicitation.
		options.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
		}
	}
	url, kind := at.of(c.revision)
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: url}
	if kind == "sse" {
		transport = &mcp.SSEClientTransport{Endpoint: url}
	}
	pinned := c.revision
	if pinned == anyRevision {
		pinned = ""
	}
	// Streams live as long as the context that they are opened with.
	ctx, c.cancel = context.WithCancel(ctx)
	timer := time.AfterFunc(hang.Guard, c.cancel)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, options).
		Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: pinned})
	timer.Stop()
	if err != nil {
		c.cancel()
		return fmt.Errorf("connect: %w", err)
	}
	c.ClientSession = session
	agreed := c.InitializeResult().ProtocolVersion
	if pinned != "" && agreed != pinned {
		return errors.Join(fmt.Errorf("agreed on %s, want %s", agreed, pinned), c.close())
	}
	c.revision = agreed
	return nil
}

func (c *goClient) close() error {
	defer c.cancel()
	if err := c.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

func sample(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	prompt, ok := r.Params.Messages[0].Content.(*mcp.TextContent)
	if !ok {
		return nil, fmt.Errorf("the prompt is %T", r.Params.Messages[0].Content)
	}
	return &mcp.CreateMessageResult{Role: "assistant", Model: "test-model", Content: &mcp.TextContent{Text: "answer to " + prompt.Text}}, nil
}

func (c *goClient) note(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// provoke calls the tool until the client was told what comes of it.
func (c *goClient) provoke(ctx context.Context, tool string, told func() bool) error {
	for {
		if _, err := c.call(ctx, tool, map[string]any{"key": c.key}); err != nil {
			return err
		}
		soon, cancel := context.WithTimeout(ctx, again)
		err := until(soon, func() (met bool, err error) {
			c.note(func() { met = told() })
			return met, nil
		})
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("no notification came: %w", err)
		}
	}
}

// call calls a tool and returns its text.
func (c *goClient) call(ctx context.Context, tool string, arguments map[string]any) (string, error) {
	result, err := c.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return "", err
	}
	if len(result.Content) != 1 {
		return "", fmt.Errorf("%s has %d parts in its result", tool, len(result.Content))
	}
	text, isText := result.Content[0].(*mcp.TextContent)
	switch {
	case !isText:
		return "", fmt.Errorf("%s returned %T", tool, result.Content[0])
	case result.IsError:
		return "", errors.New("tool error: " + text.Text)
	}
	return text.Text, nil
}

func (c *goClient) want(ctx context.Context, tool string, arguments map[string]any, want string) error {
	got, err := c.call(ctx, tool, arguments)
	if err != nil {
		return err
	}
	return equal(got, want)
}

// once: what a call does is done once, however many rounds it took.
func (c *goClient) once(ctx context.Context, event string) error {
	return c.want(ctx, "count", map[string]any{"key": c.key, "event": event}, "1")
}

func (c *goClient) counted(ctx context.Context, event string) func() (bool, error) {
	return func() (bool, error) {
		text, err := c.call(ctx, "count", map[string]any{"key": c.key, "event": event})
		if err != nil {
			return false, err
		}
		n, err := strconv.Atoi(text)
		return n > 0, err
	}
}

func equal[T any](got, want T) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("(-want +got):\n%s", diff)
	}
	return nil
}

// until asks again until the condition holds.
func until(ctx context.Context, condition func() (bool, error)) error {
	for {
		if met, err := condition(); met || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
