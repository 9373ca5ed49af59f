package reason

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/doctable"
)

var update = flag.Bool("update", false, "write the tables into the documentation")

// The documentation has what the table says.
func TestTablesInTheDocumentation(t *testing.T) {
	for _, condition := range []string{
		mcpv1alpha1.ConditionAccepted, mcpv1alpha1.ConditionAvailable, mcpv1alpha1.ConditionVerified, mcpv1alpha1.ConditionAccessEnforced, mcpv1alpha1.ConditionReconciling,
	} {
		var table strings.Builder
		table.WriteString("| reason | status | what it means | what to do |\n|---|---|---|---|\n")
		for _, row := range Table() {
			if row.Condition == condition {
				table.WriteString("| `" + strings.Join(row.Reasons, "`, `") + "` | " + row.Status + " | " + row.Meaning + " | " + row.Advice + " |\n")
			}
		}
		doctable.Check(t, "../../docs/mcpserver.md", "reasons of "+condition, table.String(), "go test ./internal/reason -update", *update)
	}
}

// The table has every reason of the API, but for that of Ready itself.
func TestTableHasEveryReason(t *testing.T) {
	source, err := os.ReadFile("../../api/v1alpha1/conditions.go")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{mcpv1alpha1.ReasonReady: true}
	for _, row := range Table() {
		for _, reason := range row.Reasons {
			known[reason] = true
		}
	}
	reasons := regexp.MustCompile(`(?m)^\tReason\w+ += "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if len(reasons) < 20 {
		t.Fatalf("found %d reasons only", len(reasons))
	}
	for _, reason := range reasons {
		if !known[reason[1]] {
			t.Errorf("the table lacks %s", reason[1])
		}
	}
}

func TestAdvice(t *testing.T) {
	for name, test := range map[string]struct{ condition, reason, want string }{
		"without Markdown":           {mcpv1alpha1.ConditionVerified, mcpv1alpha1.ReasonUnreachable, "If a NetworkPolicy is the cause, allow the manager's namespace to reach ports 16270 and 16271. See install.md, Network."},
		"nothing to do":              {mcpv1alpha1.ConditionVerified, mcpv1alpha1.ReasonVerified, ""},
		"not known":                  {mcpv1alpha1.ConditionVerified, "Later", ""},
		"by the condition it is of":  {mcpv1alpha1.ConditionReconciling, mcpv1alpha1.ReasonImageUnresolved, "Set spec.command, and the manager no longer needs the registry. See Image and command."},
		"of another condition by it": {mcpv1alpha1.ConditionAccepted, mcpv1alpha1.ReasonImageUnresolved, "Do the step that the message names: correct spec.image, or push the image; check spec.image and spec.imagePullSecrets, or set spec.command if only the nodes have registry credentials."},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Advice(test.condition, test.reason); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
