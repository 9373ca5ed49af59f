package mcpprobe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/test/hang"
)

func withPatience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	t.Cleanup(cancel)
	return ctx
}

// realServer has something in every list, in no order and with pages of two.
func realServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "real", Title: "Real", Version: "1.2.3"},
		&mcp.ServerOptions{Instructions: "Be kind.", PageSize: 2})
	for _, name := range []string{"zebra", "ant", "mole", "bee", "yak"} {
		addTool(server, name)
	}
	server.AddPrompt(&mcp.Prompt{Name: "greet", Description: "Greets."}, nil)
	server.AddResource(&mcp.Resource{URI: "file:///b", Name: "b"}, nil)
	server.AddResource(&mcp.Resource{URI: "file:///a", Name: "a", MIMEType: "text/plain"}, nil)
	server.AddResource(&mcp.Resource{URI: "file:///c", Name: "c"}, nil)
	server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "file:///{path}", Name: "any"}, nil)
	return server
}

func addTool(server *mcp.Server, name string) {
	server.AddTool(&mcp.Tool{
		Name:        name,
		Description: "Does " + name + ".",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}}}`),
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
	}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{}, nil
	})
}

func toolNames(catalog *Catalog) string {
	var names []string
	for _, tool := range catalog.Tools {
		names = append(names, tool.Name)
	}
	return strings.Join(names, " ")
}

// serveHTTP is the address of a server that speaks Streamable HTTP.
func serveHTTP(t *testing.T, server *mcp.Server, options *mcp.StreamableHTTPOptions) string {
	t.Helper()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options)
	return serve(t, handler)
}

func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// process is a server behind pipes of the operating system.
func process(t *testing.T, run func(stdin io.ReadCloser, stdout io.WriteCloser)) Target {
	t.Helper()
	stdinReader, stdinWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdoutReader, stdoutWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, file := range []*os.File{stdinReader, stdinWriter, stdoutReader, stdoutWriter} {
			_ = file.Close()
		}
	})
	go run(stdinReader, stdoutWriter)
	return Pipes(stdoutReader, stdinWriter)
}

// realProcess runs an SDK server.
func realProcess(t *testing.T, server *mcp.Server) Target {
	t.Helper()
	return process(t, func(stdin io.ReadCloser, stdout io.WriteCloser) {
		_ = server.Run(context.WithoutCancel(t.Context()), &mcp.IOTransport{Reader: stdin, Writer: stdout})
	})
}

// call is a message as a scripted server sees it.
type call struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Cursor       *string         `json:"cursor"`
		Capabilities json.RawMessage `json:"capabilities"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`

	gone <-chan struct{} // over HTTP: who called does not wait any more
}

func (c call) result(result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, c.ID, result)
}

func (c call) fail(code int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"scripted"}}`, c.ID, code)
}

const scriptedOpening = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"scripted","version":"0"}}`

// script answers by method; the empty string is no answer. What it does not name is
// answered as a small, well-behaved server of the older era would.
type script map[string]func(call) string

func (s script) answer(c call) string {
	if answer, ok := s[c.Method]; ok {
		return answer(c)
	}
	switch {
	case c.ID == nil || c.Method == "":
		return ""
	case c.Method == methodInitialize:
		return c.result(scriptedOpening)
	case c.Method == methodTools:
		return c.result(`{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`)
	case c.Method == methodPing:
		return c.result(`{}`)
	default:
		return c.fail(-32601)
	}
}

// ServeHTTP answers in JSON.
func (s script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var c call
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.gone = r.Context().Done()
	answer := s.answer(c)
	if answer == "" {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, answer)
}

// run answers lines.
func (s script) run(stdin io.ReadCloser, stdout io.WriteCloser) {
	defer func() { _ = stdout.Close() }()
	lines := bufio.NewReader(stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var c call
		if json.Unmarshal(line, &c) != nil {
			return
		}
		if answer := s.answer(c); answer != "" {
			if _, err := io.WriteString(stdout, answer+"\n"); err != nil {
				return
			}
		}
	}
}

func wantClass(t *testing.T, err error, want Class) {
	t.Helper()
	if e := ours(t, err); e.Class != want || e.Op == "" {
		t.Fatalf("got %v, want class %s and an operation", err, want)
	}
}

func ours(t *testing.T, err error) *Error {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("got %v, want an *Error", err)
	}
	return e
}

func wantLimit(t *testing.T, err error, what string) {
	t.Helper()
	wantClass(t, err, TooLarge)
	limit, ok := errors.AsType[*LimitError](err)
	if !ok || limit.What != what {
		t.Fatalf("got %v, want the limit %q", err, what)
	}
}
