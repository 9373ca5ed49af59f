package reason

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// Users read what to do apart from what is the case, whether the remedy is in the message or not.
func TestSplit(t *testing.T) {
	for name, test := range map[string]struct{ reason, message, what, advice string }{
		"at the end":        {mcpv1alpha1.ReasonInvalidImage, "x; correct spec.image", "x", "Correct spec.image."},
		"in the middle":     {mcpv1alpha1.ReasonServerExits, "exit code 1; raise spec.resources.limits.memory; see kubectl logs a", "exit code 1; see kubectl logs a", "Raise spec.resources.limits.memory."},
		"with a tail":       {mcpv1alpha1.ReasonServerSilent, "silent; " + string(CheckTransport) + ", and see kubectl logs a", "silent; see kubectl logs a", CheckTransport.Sentence()},
		"the longer of two": {mcpv1alpha1.ReasonServerIncompatible, "HTTP 404; " + string(CheckEndpoint), "HTTP 404", CheckEndpoint.Sentence()},
		"of a server, too":  {mcpv1alpha1.ReasonServerExits, "it wrote: x; " + string(DeleteOther) + "; " + string(CorrectServer) + "; see y", "it wrote: x; " + string(DeleteOther) + "; see y", CorrectServer.Sentence()},
		"of a server alone": {mcpv1alpha1.ReasonReferenceNotFound, "Secret x" + string(DeleteOther), "Secret x" + string(DeleteOther), "Create the missing object or key, or mark the reference optional."},
		"none":              {mcpv1alpha1.ReasonReferenceNotFound, "Secret x does not exist", "Secret x does not exist", "Create the missing object or key, or mark the reference optional."},
		"nothing to do":     {mcpv1alpha1.ReasonVerified, "fine", "fine", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if what, advice := Split(test.reason, test.message); what != test.what || advice != test.advice {
				t.Errorf("got %q and %q, want %q and %q", what, advice, test.what, test.advice)
			}
		})
	}
}

// Every remedy is found in a message, and the documentation has it.
func TestRemediesAreListed(t *testing.T) {
	source, err := os.ReadFile("remedy.go")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^\t(\w+) +Remedy = `).FindAllStringSubmatch(string(source), -1)
	if len(names) != len(remedies) || len(names) < 20 {
		t.Errorf("%d remedies are declared, %d are listed", len(names), len(remedies))
	}
	var advice strings.Builder
	for _, row := range Table() {
		advice.WriteString(plain(row.Advice) + row.Meaning)
	}
	for _, remedy := range remedies {
		if _, got := Split("", "x; "+string(remedy)); got != remedy.Sentence() {
			t.Errorf("%q is found as %q", remedy, got)
		}
		if !strings.Contains(advice.String(), remedy.Sentence()) && !strings.Contains(advice.String(), string(remedy)) {
			t.Errorf("no reason has %q", remedy)
		}
	}
}

// The remedies that name the adapter's ports have the right ones.
func TestPorts(t *testing.T) {
	for remedy, want := range map[Remedy]string{
		OtherPorts:   fmt.Sprintf("%d, %d and %d", mcpv1alpha1.AdapterPort, mcpv1alpha1.AdapterAdminPort, mcpv1alpha1.AdapterPeerPort),
		LetManagerIn: fmt.Sprintf("%d and %d", mcpv1alpha1.AdapterPort, mcpv1alpha1.AdapterAdminPort),
	} {
		if !strings.Contains(string(remedy), want) {
			t.Errorf("%q has not %s", remedy, want)
		}
	}
}
