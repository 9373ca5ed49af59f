// Package reason is the table of the reasons of conditions: what each means, and what to do. The
// documentation is written from it, and kubectl mcp takes its advice from it.
package reason

import (
	"regexp"
	"slices"
	"strings"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// Row is one line of the table, in Markdown.
type Row struct {
	// Condition is the type of the condition that has these reasons.
	Condition string
	Reasons   []string
	// Status is that of the condition, and what else holds.
	Status string
	// Meaning says what is the case.
	Meaning string
	// Advice says what to do, as sentences; empty if there is nothing to do.
	Advice string
}

// Advice is what to do about a reason of a condition, as plain text; empty if there is nothing to do,
// or if the reason is not known.
func Advice(condition, reason string) string {
	for _, row := range Table() {
		if row.Condition == condition && slices.Contains(row.Reasons, reason) {
			return plain(row.Advice)
		}
	}
	return ""
}

// AdviceForReady is Advice for a reason that Ready has taken over from another condition.
func AdviceForReady(reason string) string {
	for _, condition := range []string{
		mcpv1alpha1.ConditionAccepted, mcpv1alpha1.ConditionAvailable, mcpv1alpha1.ConditionVerified, mcpv1alpha1.ConditionAccessEnforced, mcpv1alpha1.ConditionReconciling,
	} {
		if advice := Advice(condition, reason); advice != "" {
			return advice
		}
	}
	return ""
}

var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// plain takes the Markdown out of a text.
func plain(markdown string) string {
	return strings.ReplaceAll(link.ReplaceAllString(markdown, "$1"), "`", "")
}
