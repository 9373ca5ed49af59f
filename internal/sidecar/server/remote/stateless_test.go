package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/stateless"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// statelessServer has, besides the tools of testServer, one with headers for its arguments,
// and a prompt with a name that no header can have as it is.
func statelessServer() http.Handler {
	server := testServer()
	server.AddTool(&mcp.Tool{Name: "region", InputSchema: map[string]any{"type": "object", "properties": map[string]any{
		"where": map[string]any{"type": "string", "x-mcp-header": "Region"},
		"deep":  map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "integer", "x-mcp-header": "N"}}},
	}}}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return said(string(r.Params.Arguments)), nil
	})
	server.AddPrompt(&mcp.Prompt{Name: "größe"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: "large"}, nil
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
}

func enveloped(id any, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":%q,"params":{%s"_meta":{"progressToken":%v,"%s":"2026-07-28","%s":{}}}}`,
		id, method, params, id, rpc.MetaProtocolVersion, rpc.MetaClientCapabilities)
}

func dialStateless(t *testing.T, b *backend) *conversation {
	t.Helper()
	dialed, err := New(connectionOptions(b.URL("/mcp"))).DialStateless(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return converse(t, dialed)
}

// A connection is to a real server what a client is.
func TestStateless(t *testing.T) {
	b := newBackend(t, statelessServer())
	c := dialStateless(t, b)
	c.from = &caller.Caller{Authorization: []string{"Bearer x"}}
	for request, want := range map[string]string{
		enveloped(1, "server/discover", ""):                                         `"supportedVersions"`,
		enveloped(2, "tools/call", `"name":"echo","arguments":{"text":"hello"},`):   `"text":"hello"`,
		enveloped(`"x"`, "no/such", ""):                                             "-32601",
		enveloped(3, "prompts/get", `"name":"no such",`):                            "-32602",
		enveloped(4, "initialize", ""):                                              `"error"`,
		enveloped(5, "tools/call", `"name":"elicit","arguments":{},`):               `"id":5`,
		enveloped(6, "resources/read", `"uri":"x://y",`):                            `"error"`,
		strings.Replace(enveloped(7, "tools/list", ""), "2026-07-28", "1999-01", 1): "status 400",
	} {
		if got := c.ask(request); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %q", request, got, want)
		}
	}
	if got := c.ask(enveloped(8, "tools/call", `"name":"progress","arguments":{},`)); !strings.Contains(got, "done") {
		t.Errorf("progress: %s", got)
	}
	for range 3 {
		if got := within(t, "progress", c.others); !strings.Contains(got, `"progressToken":8`) {
			t.Errorf("progress: %s", got)
		}
	}
	for _, got := range b.Requests("POST") {
		if got.Header.Get("Authorization") != "Bearer x" || got.Header.Get("Origin") != "" || got.Header.Get(front.HeaderMethod) == "" {
			t.Errorf("the server sees %v", got.Header)
		}
	}
}

// N-01, M-09: a subscription is a long call, and what is cancelled is cut off.
func TestStatelessListen(t *testing.T) {
	begun, left := make(chan string, 8), make(chan string, 8)
	handler := statelessServer()
	b := newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- r.Header.Get(front.HeaderMethod)
		// Not when the handler returns: one of the Go SDK may not, if it learns of the
		// end before it has begun with the tool (measured with v1.8.0).
		context.AfterFunc(r.Context(), func() { left <- r.Header.Get(front.HeaderMethod) })
		handler.ServeHTTP(w, r)
	}))
	c := dialStateless(t, b)
	c.send(enveloped(1, "subscriptions/listen", `"notifications":{"toolsListChanged":true},`))
	if got := within(t, "acknowledgement", c.others); !strings.Contains(got, "notifications/subscriptions/acknowledged") {
		t.Fatalf("got %s", got)
	}
	if got := c.ask(enveloped(2, "tools/call", `"name":"grow","arguments":{"text":"more"},`)); !strings.Contains(got, `"id":2`) {
		t.Errorf("grow: %s", got)
	}
	if got := within(t, "news", c.others); !strings.Contains(got, "list_changed") {
		t.Errorf("news: %s", got)
	}
	within(t, "end of grow", left)
	c.send(enveloped(3, "tools/call", `"name":"wait","arguments":{},`))
	for range 3 { // a call may be cancelled before the server has it
		within(t, "call", begun)
	}
	for id, method := range map[string]string{"1": "subscriptions/listen", "3": "tools/call"} {
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
		if got := within(t, "end of "+method, left); got != method {
			t.Errorf("%s has ended, not %s", got, method)
		}
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`)
	if err := c.server.Send(t.Context(), session.Message{Bytes: []byte(pong)}); !errors.Is(err, errNoAnswers) {
		t.Errorf("J-20: got %v", err)
	}
	if posts := b.Requests("POST"); len(posts) != 3 {
		t.Errorf("M-09: the server saw %d POST, want 3", len(posts))
	}
	if len(c.answers) != 0 {
		t.Errorf("an answer to what was cancelled: %s", <-c.answers)
	}
	c.send(enveloped(4, "tools/call", `"name":"wait","arguments":{},`))
	within(t, "call", begun)
	c.server.Close()
	within(t, "end of call", left)
	if err := within(t, "end", c.ended); !errors.Is(err, session.ErrEnded) || len(c.answers) != 0 {
		t.Errorf("ended by %v, %d answers", err, len(c.answers))
	}
}

// M-16, M-17: arguments are repeated by headers, as soon as it is known which.
func TestStatelessParams(t *testing.T) {
	region := func(id int, arguments string) string {
		return enveloped(id, "tools/call", `"name":"region","arguments":`+arguments+`,`)
	}
	for name, test := range map[string]struct {
		before string // another request
		asks   []string
		posts  int
		header map[string]string // of the last POST
	}{
		"unknown":          {"", []string{region(1, `{"where":"here"}`)}, 3, map[string]string{"Region": "here", "N": ""}},
		"known afterwards": {"", []string{region(1, `{"where":"here"}`), region(2, `{"where":"there","deep":{"n":7}}`)}, 4, map[string]string{"Region": "there", "N": "7"}},
		"listed before":    {enveloped(0, "tools/list", ""), []string{region(1, `{"where":" größe","deep":{"n":1.0}}`)}, 2, map[string]string{"Region": "=?base64?IGdyw7bDn2U=?=", "N": "1"}},
		"null":             {enveloped(0, "tools/list", ""), []string{region(1, `{"where":null,"deep":{}}`)}, 2, map[string]string{"Region": "", "N": ""}},
		"nothing to say":   {"", []string{region(1, `{}`)}, 1, map[string]string{"Region": "", "N": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, statelessServer())
			c := dialStateless(t, b)
			if test.before != "" {
				c.ask(test.before)
			}
			for _, request := range test.asks {
				if got := c.ask(request); !strings.Contains(got, `"result"`) {
					t.Errorf("%s: got %s", request, got)
				}
			}
			posts := b.Requests("POST")
			if len(posts) != test.posts {
				t.Errorf("%d POST, want %d", len(posts), test.posts)
			}
			for name, want := range test.header {
				if got := posts[len(posts)-1].Header.Get("Mcp-Param-" + name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

// Servers of the Go SDK do not decode names.
func TestStatelessName(t *testing.T) {
	b := newBackend(t, statelessServer())
	c := dialStateless(t, b)
	if got := c.ask(enveloped(1, "prompts/get", `"name":"größe",`)); !strings.Contains(got, "large") {
		t.Errorf("got %s", got)
	}
	var sent []string
	for _, post := range b.Requests("POST") {
		sent = append(sent, post.Header.Get(front.HeaderName))
	}
	if got := strings.Join(sent, " "); got != "=?base64?Z3LDtsOfZQ==?= größe" {
		t.Errorf("M-16: the name is sent as %s", got)
	}
}

// Clients without sessions can use such a server as they use a process.
func TestStatelessBehindEndpoint(t *testing.T) {
	b := newBackend(t, statelessServer())
	server := sessionless.New(sessionless.Options{
		Acquire: New(connectionOptions(b.URL("/mcp"))).DialStateless,
		Limits: sessionless.Limits{
			Calls: 8, Listens: 4, SendingBytes: 1 << 20, BacklogBytes: 1 << 20, TotalBytes: 4 << 20, StartTimeout: hang.Guard, Silence: hang.Guard,
			IdleTimeout: hang.Guard,
		},
	})
	endpoint := stateless.New(stateless.Options{Server: server, CallTimeout: hang.Guard, CommitAfter: hang.Guard, WriteTimeout: hang.Guard, KeepAlive: hang.Guard})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		edgetest.At(edge.Route{Serve: endpoint.Serve}).ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.Close()
		front.CloseClientConnections()
		front.Close()
	})
	c := connect(t, front.URL, "2026-07-28", func(transport *mcp.StreamableClientTransport) {
		transport.HTTPClient = &http.Client{Transport: authorizing{"Bearer mine"}}
	})
	if got := c.Call(t, "echo", "hello"); got != "hello" {
		t.Errorf("echo: %q", got)
	}
	if got := c.Call(t, "progress", ""); got != "done" {
		t.Errorf("progress: %q", got)
	}
	within(t, "progress", c.Progress)
	gomega.NewWithT(t).Eventually(func() bool {
		for _, post := range b.Requests("POST") {
			if post.Header.Get("Mcp-Method") == "subscriptions/listen" {
				return true
			}
		}
		return false
	}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
	c.Call(t, "grow", "more")
	within(t, "list change", c.Changed)
	for _, post := range b.Requests("POST") {
		if post.Header.Get("Mcp-Method") == "tools/call" && post.Header.Get("Authorization") != "Bearer mine" {
			t.Errorf("the server sees %v", post.Header)
		}
	}
}

type authorizing struct{ value string }

func (a authorizing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", a.value)
	return http.DefaultTransport.RoundTrip(r)
}
