package plugin

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestCalledAs(t *testing.T) {
	type called struct {
		name       string
		completing bool
	}
	for program, want := range map[string]called{
		"":                                        {"mcp", false},
		"kubectl-mcp":                             {"mcp", false},
		"/opt/my-kubectl-mcp":                     {"mcp", false},
		"/usr/local/bin/kubectl-slipway":          {"slipway", false},
		"kubectl-slipway.exe":                     {"slipway", false},
		"/usr/local/bin/kubectl_complete-mcp":     {"mcp", true},
		"Kubectl_Complete-MCP.EXE":                {"mcp", true},
		"/usr/local/bin/kubectl_complete-slipway": {"slipway", true},
	} {
		name, completing := calledAs(program)
		if got := (called{name, completing}); got != want {
			t.Errorf("%q: got %+v, want %+v", program, got, want)
		}
	}
}

// If the user runs the plugin by its other name, its texts use that name.
func TestOtherName(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"help":              {[]string{"--help"}, "kubectl slipway shows the MCP servers"},
		"usage":             {[]string{"--help"}, "Usage:\n  kubectl slipway [command]"},
		"help of a command": {[]string{"call", "--help"}, "kubectl slipway call tickets close_ticket"},
		"a failure":         {[]string{"logs"}, "error: name a server, as in kubectl slipway logs tickets\nSee kubectl slipway logs --help\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			Run(t.Context(), test.args, Terminal{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}, Program: "/bin/kubectl-slipway"})
			if got := out.String(); !strings.Contains(got, test.want) || strings.Contains(got, "kubectl mcp") {
				t.Errorf("got %q", got)
			}
		})
	}
}

// The values of a flag are those that its help lists.
func TestValuesOf(t *testing.T) {
	for usage, want := range map[string][]string{
		"output `format`: json, yaml, name or wide": {"json", "yaml", "name", "wide"},
		"output `format`: json or yaml":             {"json", "yaml"},
		"with TOOL: print the JSON schema":          nil,
		"look here: this thing or that thing":       nil,
		"file to read; - is standard input":         nil,
	} {
		if diff := cmp.Diff(want, valuesOf(&pflag.Flag{Usage: usage})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", usage, diff)
		}
	}
}

// A name that a shell would evaluate is never put on a command line.
func TestChoose(t *testing.T) {
	entries := []entry{
		{"close", "Closes `rm -rf` $(a) \"ticket\".\nMore."}, {"closed=", ""}, {"$(reboot)", ""}, {"`reboot`", ""}, {"a;b", ""}, {"a b", ""}, {"a\tb", ""}, {"a\x1b[2J", ""},
		{"-flag", ""}, {"~root", ""}, {"a'b", ""}, {"a>b", ""}, {"a?b", ""}, {"a*", ""}, {"!1", ""}, {"ä", ""}, {"", ""}, {strings.Repeat("a", 300), ""}, {"file:///a.md", ""},
	}
	for name, test := range map[string]struct {
		args  []string
		typed string
		want  []string
	}{
		"everything":           {nil, "", []string{"close\tCloses rm -rf (a) ticket.", "closed=", "file:///a.md"}},
		"what was begun":       {nil, "closed", []string{"closed="}},
		"what is there":        {[]string{"tickets", "close"}, "cl", []string{"closed="}},
		"an argument is there": {[]string{"tickets", "closed=1"}, "close", []string{"close\tCloses rm -rf (a) ticket."}},
		"nothing":              {nil, "x", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, choose(entries, test.args, test.typed)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
