package tolegacy

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/sse"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/streamable"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

func textResult(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

type input struct {
	Text string `json:"text,omitempty"`
}

// modernServer has a tool for each thing that a modern server can do.
func modernServer(runs *atomic.Int64) *mcp.Server {
	agree := func(context.Context, *mcp.SubscribeRequest) error { return nil }
	server := mcp.NewServer(&mcp.Implementation{Name: "modern", Version: "3"}, &mcp.ServerOptions{
		Instructions: "be kind", SubscribeHandler: agree,
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	server.AddResource(&mcp.Resource{Name: "r", URI: "a://r"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "a://r", Text: "content"}}}, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		runs.Add(1)
		return textResult(in.Text), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "progress"}, func(ctx context.Context, r *mcp.CallToolRequest, _ input) (*mcp.CallToolResult, any, error) {
		for i := range 3 {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i)}); err != nil {
				return nil, nil, err
			}
		}
		return textResult("done"), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "changed"}, func(ctx context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		server.AddPrompt(&mcp.Prompt{Name: in.Text}, nil)
		return textResult("done"), nil, server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "a://r"})
	})
	mcp.AddTool(server, &mcp.Tool{Name: "inputs"}, inputs(runs))
	server.AddPrompt(&mcp.Prompt{Name: "first"}, nil)
	return server
}

// inputs asks in two rounds: for all that the client has, and then by elicitation again,
// if it has that.
func inputs(runs *atomic.Int64) mcp.ToolHandlerFor[input, any] {
	return func(_ context.Context, r *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		runs.Add(1)
		can := r.ClientCapabilities()
		if r.Params.RequestState == "" {
			first := &mcp.CallToolResult{RequestState: "1/" + in.Text, InputRequests: mcp.InputRequestMap{
				"s": &mcp.CreateMessageParams{MaxTokens: 5, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "sample " + in.Text}}}},
				"r": &mcp.ListRootsParams{},
			}}
			if can.Elicitation != nil {
				first.InputRequests["e"] = &mcp.ElicitParams{Message: "elicit " + in.Text}
			}
			return first, nil, nil
		}
		if r.Params.RequestState == "1/"+in.Text {
			said := []string{"-"}
			if can.Elicitation != nil {
				elicited, ok := r.Params.InputResponses["e"].(*mcp.ElicitResult)
				if !ok {
					return nil, nil, errors.New("no elicitation")
				}
				said[0] = fmt.Sprint(elicited.Content["said"])
			}
			roots, ok := r.Params.InputResponses["r"].(*mcp.ListRootsResult)
			if !ok {
				return nil, nil, errors.New("no roots")
			}
			sampled, ok := samplingText(r.Params.InputResponses["s"])
			if !ok {
				return nil, nil, fmt.Errorf("no sampling: %T", r.Params.InputResponses["s"])
			}
			said = append(said, roots.Roots[0].URI, sampled)
			if can.Elicitation == nil {
				return textResult(strings.Join(said, " ")), nil, nil
			}
			return &mcp.CallToolResult{RequestState: strings.Join(said, " "), InputRequests: mcp.InputRequestMap{"again": &mcp.ElicitParams{Message: "again"}}}, nil, nil
		}
		again, ok := r.Params.InputResponses["again"].(*mcp.ElicitResult)
		if !ok || len(r.Params.InputResponses) != 1 {
			return nil, nil, errors.New("no second elicitation, or more than that")
		}
		return textResult(r.Params.RequestState + " " + again.Action), nil, nil
	}
}

func samplingText(response any) (string, bool) {
	switch response := response.(type) {
	case *mcp.CreateMessageResult:
		content, ok := response.Content.(*mcp.TextContent)
		return content.Text, ok
	case *mcp.CreateMessageWithToolsResult:
		content, ok := response.Content[0].(*mcp.TextContent)
		return content.Text, ok
	}
	return "", false
}

// serve offers sessions over a modern server at a URL, on both transports.
func serve(t *testing.T, modern Modern) (url string, metrics *session.Metrics) {
	t.Helper()
	metrics = &session.Metrics{}
	limits := session.Limits{
		Calls: 64, Streams: 4, ReplayBytes: 1 << 20, PendingBytes: 1 << 20, TotalBytes: 64 << 20,
		CommitAfter: 100 * time.Millisecond, CallTimeout: hang.Guard, CancelGrace: time.Second, DeliveryTimeout: hang.Guard,
	}
	open := func(context.Context, *caller.Caller) (*session.Session, error) {
		server := New(Options{Modern: modern, Limits: DefaultLimits(), Metrics: &Metrics{}})
		opened := session.New(server, limits, metrics)
		server.Serve(opened.Deliver, opened.End)
		return opened, nil
	}
	registry := session.NewRegistry(session.Policy{Max: 16, IdleTimeout: time.Hour, MaxLifetime: time.Hour})
	var ids atomic.Int64
	mint := func() string { return fmt.Sprintf("s%d", ids.Add(1)) }
	old := sse.New(sse.Options{
		Sessions: registry, Open: open, MintToken: mint, PostTo: sse.MessagesPath,
		OpenTimeout: hang.Guard, WriteTimeout: hang.Guard, KeepAlive: time.Second,
	})
	routes := old.Routes()
	routes["/"] = streamable.New(streamable.Options{
		Sessions: registry, Open: open, MintID: mint,
		OpenTimeout: hang.Guard, WriteTimeout: hang.Guard, KeepAlive: time.Second, Retry: time.Second,
	}).Route()
	server := httptest.NewServer(edgetest.Door(routes))
	t.Cleanup(server.Close)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		registry.Drain(ctx)
	})
	return server.URL, metrics
}

// listener of a client's: what it was told.
type ears struct {
	progress chan float64
	prompts  chan struct{}
	updated  chan string
}

// connect connects the official client.
func connect(t *testing.T, transport mcp.Transport, revision string) (*mcp.ClientSession, *ears) {
	t.Helper()
	heard := &ears{make(chan float64, 100), make(chan struct{}, 100), make(chan string, 100)}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"said": "heard:" + strings.ReplaceAll(r.Params.Message, " ", "-")}}, nil
		},
		CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			asked, ok := r.Params.Messages[0].Content.(*mcp.TextContent)
			if !ok {
				return nil, errors.New("no text")
			}
			return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: "made:" + strings.ReplaceAll(asked.Text, " ", "-")}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { heard.progress <- r.Params.Progress },
		PromptListChangedHandler:    func(context.Context, *mcp.PromptListChangedRequest) { heard.prompts <- struct{}{} },
		ResourceUpdatedHandler:      func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { heard.updated <- r.Params.URI },
	})
	client.AddRoots(&mcp.Root{URI: "file:///root"})
	connected, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	if got := connected.InitializeResult().ProtocolVersion; got != revision {
		t.Errorf("agreed on %s, want %s", got, revision)
	}
	t.Cleanup(func() {
		if err := connected.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return connected, heard
}

func callTool(t *testing.T, client *mcp.ClientSession, name, text string) string {
	t.Helper()
	params := &mcp.CallToolParams{Name: name, Arguments: map[string]any{"text": text}}
	params.SetProgressToken("token of " + name)
	result, err := client.CallTool(t.Context(), params)
	if err != nil || result.IsError || len(result.Content) == 0 {
		t.Errorf("call %s: %+v, %v", name, result, err)
		return ""
	}
	content, ok := result.Content[0].(*mcp.TextContent)
	if !ok {
		t.Errorf("call %s: %T", name, result.Content[0])
		return ""
	}
	return content.Text
}

func receive[T any](t *testing.T, what string, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(hang.Guard):
		t.Fatalf("no %s", what)
	}
	return got
}

// TestSDK has official clients of all older revisions, over both transports, talk to an
// official server that is only spoken to in the modern one.
func TestSDK(t *testing.T) {
	for _, revision := range []string{r24, r03, r06, r11} {
		for name, transport := range map[string]func(url string) mcp.Transport{
			"streamable": func(url string) mcp.Transport { return &mcp.StreamableClientTransport{Endpoint: url} },
			"HTTP+SSE":   func(url string) mcp.Transport { return &mcp.SSEClientTransport{Endpoint: url + sse.StreamPath} },
		} {
			t.Run(revision+" "+name, func(t *testing.T) {
				var runs atomic.Int64
				modern := newPipes(t, modernServer(&runs))
				url, metrics := serve(t, modern)
				client, heard := connect(t, transport(url), revision)
				tellsAll(t, client, heard, revision)
				if runs.Load() != int64(1+rounds(revision)) {
					t.Errorf("tools ran %d times", runs.Load())
				}
				if modern.count(`"method":"initialize"`)+modern.count(`"notifications/initialized"`) > 0 {
					t.Error("the server was spoken to in an older revision")
				}
				if metrics.UnmatchedAnswers.Value()+metrics.UnmatchedProgress.Value() > 0 {
					t.Error("messages that belong nowhere")
				}
			})
		}
	}
}

// rounds is how often the tool with inputs runs for one call.
func rounds(revision string) int {
	if revision < r06 {
		return 2
	}
	return 3
}

func wantInputs(revision, text string) string {
	want := "- file:///root made:sample-" + text
	if revision >= r06 {
		want = "heard:elicit-" + text + strings.TrimPrefix(want, "-") + " accept"
	}
	return want
}

func tellsAll(t *testing.T, client *mcp.ClientSession, heard *ears, revision string) {
	t.Helper()
	result := client.InitializeResult()
	if result.ServerInfo.Name != "modern" || result.Instructions != "be kind" || !result.Capabilities.Resources.Subscribe {
		t.Errorf("initialize: %+v", result)
	}
	if err := client.Ping(t.Context(), nil); err != nil {
		t.Errorf("ping: %v", err)
	}
	if err := client.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
		t.Errorf("set level: %v", err)
	}
	if tools, err := client.ListTools(t.Context(), nil); err != nil || len(tools.Tools) != 4 {
		t.Errorf("list: %v, %v", tools, err)
	}
	if read, err := client.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "a://r"}); err != nil || read.Contents[0].Text != "content" {
		t.Errorf("read: %v, %v", read, err)
	}
	if _, err := client.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "a://none"}); err == nil {
		t.Error("a resource that is not there was read")
	}
	if got := callTool(t, client, "echo", "héllo"); got != "héllo" {
		t.Errorf("echo: %q", got)
	}
	if got, want := callTool(t, client, "inputs", "x"), wantInputs(revision, "x"); got != want {
		t.Errorf("inputs: %q, want %q", got, want)
	}
	callTool(t, client, "progress", "")
	for i := range 3 {
		if got := receive(t, "progress", heard.progress); got != float64(i) {
			t.Errorf("progress %v, want %d", got, i)
		}
	}
	if err := client.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "a://r"}); err != nil {
		t.Errorf("subscribe: %v", err)
	}
	callTool(t, client, "changed", "second")
	receive(t, "change of prompts", heard.prompts)
	if got := receive(t, "update", heard.updated); got != "a://r" {
		t.Errorf("updated %q", got)
	}
	if err := client.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: "a://r"}); err != nil {
		t.Errorf("unsubscribe: %v", err)
	}
	callTool(t, client, "changed", "third")
	receive(t, "change of prompts", heard.prompts)
	if len(heard.updated) > 0 {
		t.Error("updated without a subscription")
	}
}

// I-05, Q-02, M-23: many calls of several clients that ask back, all at once. Every round of every call
// runs once, and each client gets the answers to its own questions.
func TestParallelRounds(t *testing.T) {
	var runs atomic.Int64
	modern := newPipes(t, modernServer(&runs))
	url, _ := serve(t, modern)
	const calls = 8
	want := 0
	var all sync.WaitGroup
	for i, revision := range []string{r03, r06, r11} {
		client, _ := connect(t, &mcp.StreamableClientTransport{Endpoint: url}, revision)
		for j := range calls {
			want += rounds(revision)
			all.Go(func() {
				text := fmt.Sprintf("c%d.%d", i, j)
				if got, want := callTool(t, client, "inputs", text), wantInputs(revision, text); got != want {
					t.Errorf("inputs: %q, want %q", got, want)
				}
			})
		}
	}
	all.Wait()
	if got := int(runs.Load()); got != want {
		t.Errorf("the tool ran %d times, want %d", got, want)
	}
}
