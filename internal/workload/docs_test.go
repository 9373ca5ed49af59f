package workload

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/doctable"
)

// What the documentation says of the objects of a server is what the table says.
func TestOwnedInTheDocumentation(t *testing.T) {
	const command = "go test ./internal/workload -update"
	server := &mcpv1alpha1.MCPServer{}
	server.Name = "NAME"
	var made, allowed strings.Builder
	made.WriteString("| object | name | what for |\n|---|---|---|\n")
	allowed.WriteString("| resource | verbs |\n|---|---|\n")
	for _, owned := range AllOwned() {
		name := "NAME-HASH"
		if owned.Name != nil {
			name = owned.Name(server)
		}
		fmt.Fprintf(&made, "| %s | %s | %s |\n", owned.Kind.Kind, name, owned.Purpose)
		if owned.Purpose == "" {
			t.Errorf("%s: the table does not say what it is for", owned.ID)
		}
	}
	for _, resource := range resources() {
		allowed.WriteString("| " + resource + " |\n")
	}
	doctable.Check(t, "../../docs/mcpserver.md", "objects", made.String(), command, *update)
	doctable.Check(t, "../../docs/install.md", "permissions", allowed.String(), command, *update)
}

// resources are the kinds of the table, with what the manager may do, each once.
func resources() []string {
	var rows []string
	for _, owned := range AllOwned() {
		resource := owned.Resource
		if group := owned.Kind.Group; strings.Contains(group, ".") {
			resource += " (" + group + ")"
		}
		rows = append(rows, resource+" | "+owned.Verbs())
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}
