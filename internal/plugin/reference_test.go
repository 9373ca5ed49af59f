package plugin

import (
	"flag"
	"testing"

	"github.com/slipway-mcp/slipway/test/doctable"
)

var update = flag.Bool("update", false, "write the reference into the documentation")

func TestReferenceInTheDocumentation(t *testing.T) {
	doctable.Check(t, "../../docs/kubectl-mcp.md", "reference", Reference(), "go test ./internal/plugin -update", *update)
}
