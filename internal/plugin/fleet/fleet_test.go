package fleet

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// What the operator's probe stores is read back as it is, also where the operator has cut it so that it
// matches its digest no more.
func TestParse(t *testing.T) {
	stored := mcpprobe.Catalog{
		Digest: "sha256:of-the-whole",
		Tools: []mcpprobe.Tool{{
			Name: "close", Title: "Close", Description: "Closes.", InputSchema: json.RawMessage(`{"type":"object"}`), OutputSchema: json.RawMessage(`{}`),
			Annotations: mcpprobe.Annotations{Title: "t", IdempotentHint: new(true)},
			Raw:         json.RawMessage(`{"annotations":{"idempotentHint":true,"title":"t"},"description":"Closes.","inputSchema":{"type":"object"},"name":"close","outputSchema":{},"title":"Close","x":1}`),
		}},
	}
	text, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(&corev1.ConfigMap{Data: map[string]string{mcpv1alpha1.CatalogKey: string(text), mcpv1alpha1.CatalogTrimmedKey: "prompts"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Catalog{Tools: stored.Tools, Trimmed: "prompts"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, broken := range []string{"", "{", `{"tools":{}}`, `{"tools":[7]}`, `{"tools":[{}]}`} {
		if got, err := parse(&corev1.ConfigMap{Data: map[string]string{mcpv1alpha1.CatalogKey: broken}}); err == nil {
			t.Errorf("%q is %v", broken, got)
		}
	}
}
