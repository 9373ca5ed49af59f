package plugin

import (
	"testing"

	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

// Without the name of one, read and prompt show what there is, and ask no pod.
func TestOffered(t *testing.T) {
	namespace := newNamespace(t, "offered")
	createServers(t, namespace)
	addPrompts(t, namespace)
	for name, args := range map[string][]string{
		"offered-resources.txt": {"read", "tickets"}, "offered-resources-name.txt": {"read", "tickets", "-o", "name"}, "offered-resources-json.txt": {"read", "tickets", "-o", "json"},
		"offered-prompts.txt": {"prompt", "tickets"}, "offered-none.txt": {"prompt", "asleep"},
	} {
		got := kubectlMCP(t, kubeconfig, table.Screen{IsTerminal: true, Width: 80}, append(args, "-n", namespace)...)
		if got.code != 0 {
			t.Errorf("%v: exit code %d", args, got.code)
		}
		golden(t, name, got.out+got.errOut)
	}
	if got := kubectlMCP(t, viewer, table.Screen{}, "read", "tickets", "-n", namespace); got.code != 3 {
		t.Errorf("without the right to read the catalog: %+v", got)
	}
}
