package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
	"github.com/slipway-mcp/slipway/test/doctable"
)

const (
	connectPage    = "../../docs/connect.md"
	connectCommand = "go test ./internal/plugin -update"
)

// clientTitles are the names of the products.
var clientTitles = map[string]string{"claude-code": "Claude Code", "claude-desktop": "Claude Desktop", "cursor": "Cursor", "vscode": "VS Code"}

// The page on clients has, for each of them, what connect --print prints.
func TestClientsInTheDocumentation(t *testing.T) {
	var page strings.Builder
	for _, name := range clientNames(t) {
		title := clientTitles[name]
		if title == "" {
			t.Errorf("the page has no title for client %s", name)
		}
		printed, file := printedFor(t, name)
		fmt.Fprintf(&page, "\n### %s\n\n`kubectl mcp connect -n support tickets --print %s` prints", title, name)
		language := "sh"
		if strings.HasPrefix(printed, "{") {
			language = "json"
			fmt.Fprintf(&page, " what to add to `%s`", file)
		}
		fmt.Fprintf(&page, ":\n\n```%s\n%s```\n", language, printed)
	}
	page.WriteString("\n")
	doctable.Check(t, connectPage, "clients", page.String(), connectCommand, *update)
}

// clientNames are those that --print knows, as its error for another one lists them.
func clientNames(t *testing.T) []string {
	t.Helper()
	e, _, _ := printer(t)
	failed, ok := errors.AsType[*failure](e.printClient("none", ticketsServer(), mcpv1alpha1.AdapterPort))
	if !ok {
		t.Fatal("a client that is not known is no error")
	}
	names, found := strings.CutPrefix(failed.next, "Use one of: ")
	if !found {
		t.Fatalf("the error does not list the clients: %q", failed.next)
	}
	return strings.Split(names, ", ")
}

// printedFor is what --print prints for a client, on a machine with usual paths, and for which file.
func printedFor(t *testing.T, name string) (text, file string) {
	t.Helper()
	e, out, errOut := printer(t)
	if err := e.printClient(name, ticketsServer(), mcpv1alpha1.AdapterPort); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	usual := strings.NewReplacer(program, "/usr/local/bin/kubectl-mcp", *e.flags.KubeConfig, "/home/me/.kube/config")
	return usual.Replace(out.String()), strings.TrimSuffix(strings.TrimPrefix(errOut.String(), "For "), ":\n")
}

// printer has a kubeconfig with one context.
func printer(t *testing.T) (e *environment, out, errOut *bytes.Buffer) {
	t.Helper()
	e, out, errOut = typed("", table.Screen{})
	e.flags = genericclioptions.NewConfigFlags(true)
	file := filepath.Join(t.TempDir(), "config")
	config := api.Config{CurrentContext: "work", Contexts: map[string]*api.Context{"work": {Cluster: "work"}}, Clusters: map[string]*api.Cluster{"work": {Server: "https://cluster.example.com"}}}
	if err := clientcmd.WriteToFile(config, file); err != nil {
		t.Fatal(err)
	}
	e.flags.KubeConfig = &file
	return e, out, errOut
}

func ticketsServer() *mcpv1alpha1.MCPServer {
	return &mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: "support", Name: "tickets"}}
}

// The page has the function of agent_test.go, which works.
func TestGoClientInTheDocumentation(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "tickets", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "search_tickets"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
		Query string `json:"query"`
	},
	) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "found " + in.Query}}}, nil, nil
	})
	listening := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	defer listening.Close()
	result, err := searchTickets(t.Context(), listening.URL)
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := result.Content[0].(*mcp.TextContent); !ok || text.Text != "found printer" {
		t.Errorf("got %v", result.Content[0])
	}
	source, err := os.ReadFile("agent_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, function, found := strings.Cut(string(source), "\nfunc ")
	if !found {
		t.Fatal("agent_test.go has no function")
	}
	doctable.Check(t, connectPage, "Go", "\n```go\nfunc "+function+"```\n\n", connectCommand, *update)
}
