package mcpprobe

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// asking is a process that asks for something before it lists its tools, and names
// its tools after the answers.
func asking(stdin io.ReadCloser, stdout io.WriteCloser) {
	lines := bufio.NewReader(stdin)
	receive := func() (c call) {
		line, _ := lines.ReadBytes('\n')
		_ = json.Unmarshal(line, &c)
		return c
	}
	send := func(message string) { _, _ = io.WriteString(stdout, message+"\n") }
	opening := receive()
	capabilities := string(opening.Params.Capabilities)
	send(opening.result(scriptedOpening))
	receive() // initialized
	listing := receive()
	tools := []map[string]string{{"name": "capabilities", "description": capabilities}}
	for i, method := range []string{"ping", "roots/list", "elicitation/create", "sampling/createMessage", "vendor/thing"} {
		send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"mode":"url","requestedSchema":7,"messages":"odd"}}`, i, method))
		answer := receive()
		tools = append(tools, map[string]string{"name": method, "description": string(answer.Result) + string(answer.Error)})
	}
	list, _ := json.Marshal(tools)
	send(listing.result(`{"tools":` + string(list) + `}`))
	_, _ = io.Copy(io.Discard, lines)
}

func TestP07RequestsOfTheServerAreDeclined(t *testing.T) {
	catalog, err := Probe(withPatience(t), process(t, asking), Options{SkipDiscover: true})
	if err != nil {
		t.Fatalf("Probe: %v", err)
	}
	got := map[string]string{}
	for _, tool := range catalog.Tools {
		got[tool.Name] = tool.Description
	}
	want := map[string]string{
		"capabilities":           `{"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}`,
		"ping":                   `{}`,
		"roots/list":             `{"roots":[]}`,
		"elicitation/create":     `{"action":"decline"}`,
		"sampling/createMessage": `{"code":-1,"message":"User rejected sampling request"}`,
		"vendor/thing":           `{"code":-32601,"message":"method not found: \"vendor/thing\""}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

// conditional is a server that shows more to clients that can do more, and asks them
// on the way.
type conditional struct {
	mu      sync.Mutex
	answers map[string]string
}

func (c *conditional) server() *mcp.Server {
	var server *mcp.Server
	server = mcp.NewServer(&mcp.Implementation{Name: "conditional", Version: "1"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
		InitializedHandler: func(_ context.Context, request *mcp.InitializedRequest) {
			declared := request.Session.InitializeParams().Capabilities
			if declared.Sampling != nil {
				addTool(server, "needs-sampling")
			}
			if declared.Elicitation != nil && declared.Elicitation.URL != nil && declared.Elicitation.Form != nil {
				addTool(server, "needs-elicitation")
			}
			if declared.RootsV2 != nil {
				addTool(server, "needs-roots")
			}
		},
	})
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
			if method == methodTools {
				c.ask(ctx, request.GetSession().(*mcp.ServerSession))
			}
			return next(ctx, method, request)
		}
	})
	return server
}

func (c *conditional) ask(ctx context.Context, session *mcp.ServerSession) {
	elicited, elicitErr := session.Elicit(ctx, &mcp.ElicitParams{Message: "well?", RequestedSchema: json.RawMessage(`{"type":"object"}`)})
	roots, rootsErr := session.ListRoots(ctx, nil)
	_, sampleErr := session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 1})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = map[string]string{"errors": fmt.Sprint(elicitErr, rootsErr), "sampling": fmt.Sprint(sampleErr)}
	if elicitErr == nil && rootsErr == nil {
		c.answers["elicitation"], c.answers["roots"] = elicited.Action, strconv.Itoa(len(roots.Roots))
	}
}

func TestQ01ToolsThatDependOnCapabilitiesAreAllListed(t *testing.T) {
	var c conditional
	for name, target := range map[string]Target{
		"HTTP":    HTTP(serveHTTP(t, c.server(), nil), nil),
		"SSE":     SSE(serve(t, mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return c.server() }, nil)), nil),
		"process": realProcess(t, c.server()),
	} {
		t.Run(name, func(t *testing.T) {
			catalog, err := Probe(withPatience(t), target, Options{SkipDiscover: true})
			if err != nil {
				t.Fatalf("Probe: %v", err)
			}
			if got := toolNames(catalog); got != "needs-elicitation needs-roots needs-sampling" {
				t.Errorf("got tools %q", got)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.answers["elicitation"] != "decline" || c.answers["roots"] != "0" || !strings.Contains(c.answers["sampling"], "rejected") {
				t.Errorf("got answers %v", c.answers)
			}
		})
	}
}
