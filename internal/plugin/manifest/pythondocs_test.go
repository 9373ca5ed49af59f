package manifest

import (
	"testing"

	"github.com/slipway-mcp/slipway/test/doctable"
)

// The page on servers in Python has the MCPServer that its command prints.
func TestPythonInTheDocumentation(t *testing.T) {
	result, err := New(Request{Namespace: "support", Name: "tickets", Package: "pypi:mcp-tickets@2.1.0"})
	if err != nil {
		t.Fatal(err)
	}
	doctable.Check(t, "../../../docs/how-to/python.md", "uvx", "\n```yaml\n"+encoded(t, result)+"```\n\n", "go test ./internal/plugin/manifest -update", *update)
}
