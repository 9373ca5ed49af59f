package sidecar

import (
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// Servers of the Go SDK end when blanks follow a message on its line. No client may end the server of others so.
func TestBlanksAroundMessages(t *testing.T) {
	t.Parallel()
	_, url := startAdapterOn(t, newListener(t), func(c *config.Config) { c.Shared = true }, bothServer)
	other, err := newClient(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newClient(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for _, text := range []string{list + " ", list + "\t\t", list + "\r\n", "  \n" + list, list + "   \n  "} {
		for name, from := range map[string]*client{"the same": c, "another": other} {
			if got, err := from.messages(t.Context(), text); err != nil || len(got) != 1 {
				t.Fatalf("%s client, after %q: %q, %v", name, text, got, err)
			}
		}
	}
}
