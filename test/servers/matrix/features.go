package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	plainURI = "matrix://plain"
	itemURI  = "matrix://item/"
	steps    = 3
	patience = time.Minute // with clients
)

// mine is the argument of tools that do something for one client.
type mine struct {
	Key string `json:"key" jsonschema:"made up by the client; what is counted goes by it"`
}

type counting struct {
	Key   string `json:"key"`
	Event string `json:"event"`
}

type number struct {
	Number int `json:"number"`
}

type server struct {
	*mcp.Server
	events journal
}

// newServer returns a server with all features, and all revisions if none are given.
func newServer(events journal, versions []string) *mcp.Server {
	s := server{events: events, Server: mcp.NewServer(&mcp.Implementation{Name: "matrix", Version: "1"}, &mcp.ServerOptions{
		SupportedProtocolVersions: versions,
		SubscribeHandler:          func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler:        func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})}
	mcp.AddTool(s.Server, &mcp.Tool{Name: "echo", Description: "Says what it is told."}, echo)
	mcp.AddTool(s.Server, &mcp.Tool{Name: "revision", Description: "Says which revision the server believes to speak."}, revision)
	mcp.AddTool(s.Server, &mcp.Tool{Name: "count", Description: "Says how often something was done, in structure."}, s.count)
	mcp.AddTool(s.Server, &mcp.Tool{Name: "steps", Description: "Reports progress in three steps, and waits for them to be seen."}, s.progress)
	mcp.AddTool(s.Server, &mcp.Tool{Name: "seen", Description: "Takes note that the client has seen the steps."}, s.seen)
	mcp.AddTool(s.Server, &mcp.Tool{Name: "wait", Description: "Waits to be cancelled."}, s.wait)
	mcp.AddTool(s.Server, &mcp.Tool{Name: "grow", Description: "Adds a tool."}, s.grow)
	mcp.AddTool(s.Server, &mcp.Tool{Name: "touch", Description: "Changes a resource."}, s.touch)
	mcp.AddTool(s.Server, &mcp.Tool{Name: "order", Description: "Asks the user for a name, and does something for it."}, s.order)
	mcp.AddTool(s.Server, &mcp.Tool{Name: "ponder", Description: "Asks the client's model."}, s.ponder)
	s.AddResource(&mcp.Resource{Name: "plain", URI: plainURI, MIMEType: "text/plain"}, read)
	s.AddResourceTemplate(&mcp.ResourceTemplate{Name: "item", URITemplate: itemURI + "{key}", MIMEType: "text/plain"}, read)
	s.AddPrompt(&mcp.Prompt{Name: "greeting", Arguments: []*mcp.PromptArgument{{Name: "name", Required: true}}}, greet)
	return s.Server
}

func text(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

func echo(_ context.Context, _ *mcp.CallToolRequest, in struct {
	Text string `json:"text"`
}) (*mcp.CallToolResult, any, error) {
	return text("%s", in.Text), nil, nil
}

func revision(_ context.Context, request *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	return text("%s", request.ProtocolVersion()), nil, nil
}

func (s server) count(_ context.Context, _ *mcp.CallToolRequest, in counting) (*mcp.CallToolResult, number, error) {
	n, err := s.events.count(in.Key, in.Event)
	return text("%d", n), number{n}, err
}

// progress has its result when the client has seen the steps: they are to be told when
// they happen. And a TypeScript client that reads a step and the result at once forgets
// the call's token before it looks at the step.
func (s server) progress(ctx context.Context, request *mcp.CallToolRequest, in mine) (*mcp.CallToolResult, any, error) {
	token := request.Params.GetProgressToken()
	if token == nil {
		return nil, nil, errors.New("the call has no progress token")
	}
	for step := range steps {
		if err := request.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: float64(step + 1), Total: steps, Message: fmt.Sprintf("step %d", step+1),
		}); err != nil {
			return nil, nil, fmt.Errorf("report progress: %w", err)
		}
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if seen, err := s.events.count(in.Key, "seen"); seen > 0 || err != nil {
			return text("done"), nil, err
		}
	}
	return nil, nil, errors.New("the client did not see the steps")
}

func (s server) seen(_ context.Context, _ *mcp.CallToolRequest, in mine) (*mcp.CallToolResult, any, error) {
	return text("so be it"), nil, s.events.add(in.Key, "seen")
}

// wait ends by itself after a while, so that nothing is left of a call that no client cancels.
func (s server) wait(ctx context.Context, _ *mcp.CallToolRequest, in mine) (*mcp.CallToolResult, any, error) {
	if err := s.events.add(in.Key, "started"); err != nil {
		return nil, nil, err
	}
	select {
	case <-ctx.Done():
		return text("cancelled"), nil, s.events.add(in.Key, "cancelled")
	case <-time.After(time.Minute):
		return text("not cancelled"), nil, s.events.add(in.Key, "finished")
	}
}

func (s server) grow(_ context.Context, _ *mcp.CallToolRequest, in mine) (*mcp.CallToolResult, any, error) {
	name := "grown-" + in.Key
	mcp.AddTool(s.Server, &mcp.Tool{Name: name, Description: "Was added."}, echo)
	return text("%s", name), nil, nil
}

func (s server) touch(ctx context.Context, _ *mcp.CallToolRequest, in mine) (*mcp.CallToolResult, any, error) {
	return text("touched"), nil, s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: itemURI + in.Key})
}

func read(_ context.Context, request *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := request.Params.URI
	content := "plain"
	if key, item := strings.CutPrefix(uri, itemURI); item {
		content = "item " + key
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, MIMEType: "text/plain", Text: content}}}, nil
}

func greet(_ context.Context, request *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{
		{Role: "user", Content: &mcp.TextContent{Text: "Greet " + request.Params.Arguments["name"] + "."}},
	}}, nil
}
