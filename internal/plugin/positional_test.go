package plugin

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// A command that ignored an argument would do something else than the user asked for.
func TestExtraArguments(t *testing.T) {
	for args, want := range map[string]string{
		"connect a b":         "error: b is too much: the command is kubectl mcp connect NAME\nSee kubectl mcp connect --help\n",
		"logs a b c":          "error: b c is too much: the command is kubectl mcp logs NAME\nSee kubectl mcp logs --help\n",
		"read a b c":          "error: c is too much: the command is kubectl mcp read NAME [URI]\nSee kubectl mcp read --help\n",
		"prompt a b c":        "error: \"c\" is no argument: write it as name=value\nSee kubectl mcp prompt --help\n",
		"tools a b c":         "error: c is too much: the command is kubectl mcp tools [NAME [TOOL]]\nSee kubectl mcp tools --help\n",
		"doctor a b":          "error: b is too much: the command is kubectl mcp doctor [NAME]\nSee kubectl mcp doctor --help\n",
		"list a":              "error: a is too much: the command is kubectl mcp list\nSee kubectl mcp list --help\n",
		"import a":            "error: a is too much: the command is kubectl mcp import -f FILE...\nSee kubectl mcp import --help\n",
		"import a -o json":    "error: unknown shorthand flag: 'o' in -o\nSee kubectl mcp import --help\n",
		"connect":             "error: name a server, as in kubectl mcp connect tickets\nSee kubectl mcp connect --help\n",
		"doctor a \x1b[2J":    "error:  [2J is too much: the command is kubectl mcp doctor [NAME]\nSee kubectl mcp doctor --help\n",
		"tools a b c -o json": `{"error":"c is too much: the command is kubectl mcp tools [NAME [TOOL]]","next":"See kubectl mcp tools --help","code":1}` + "\n",
	} {
		t.Run(args, func(t *testing.T) {
			var out, errOut bytes.Buffer
			streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
			code := Run(t.Context(), append([]string{"--kubeconfig=/dev/null"}, strings.Fields(args)...), Terminal{IOStreams: streams})
			if diff := cmp.Diff(want, errOut.String()); diff != "" || code != exitUnexpected || out.Len() > 0 {
				t.Errorf("exit code %d, output %q, error (-want +got):\n%s", code, out.String(), diff)
			}
		})
	}
}
