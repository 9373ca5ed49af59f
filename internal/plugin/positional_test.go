package plugin

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// takeMore are the commands that take any number of arguments, with what those are. All others take as many as
// their line of usage names.
var takeMore = map[string]string{
	"call":         "arguments of the tool",
	"prompt":       "arguments of the prompt",
	"report":       "servers",
	"top":          "servers",
	"refresh":      "servers",
	"suspend":      "servers",
	"resume":       "servers",
	"sessions end": "sessions",
	"inspect":      "arguments of the Inspector, which it refuses without --cli",
	"new":          "the command of the server, behind --",
	"import":       "none: the line of usage repeats a flag",
}

// A command that ignored an argument would do something else than the user asked for.
func TestExtraArguments(t *testing.T) {
	tests := map[string]string{
		"logs a b c":          "error: b c is too much: the command is kubectl mcp logs NAME\nSee kubectl mcp logs --help\n",
		"prompt a b c":        "error: \"c\" is no argument: write it as name=value\nSee kubectl mcp prompt --help\n",
		"import a":            "error: a is too much: the command is kubectl mcp import -f FILE...\nSee kubectl mcp import --help\n",
		"import a -o json":    "error: unknown shorthand flag: 'o' in -o\nSee kubectl mcp import --help\n",
		"inspect a b":         "error: arguments of the Inspector need --cli\nSee kubectl mcp inspect --help\n",
		"connect":             "error: name a server, as in kubectl mcp connect tickets\nSee kubectl mcp connect --help\n",
		"doctor a \x1b[2J":    "error:  [2J is too much: the command is kubectl mcp doctor [NAME]\nSee kubectl mcp doctor --help\n",
		"tools a b c -o json": `{"error":"c is too much: the command is kubectl mcp tools [NAME [TOOL]]","next":"See kubectl mcp tools --help","code":1}` + "\n",
	}
	known := maps.Clone(takeMore)
	for _, command := range allCommands((&environment{flags: genericclioptions.NewConfigFlags(true)}).root()) {
		name := strings.TrimPrefix(command.CommandPath(), "kubectl mcp ")
		if _, takesMore := known[name]; takesMore {
			delete(known, name)
			continue
		}
		if strings.Contains(command.Use, "...") {
			t.Errorf("%s takes any number of arguments: say in takeMore what they are", command.Use)
		}
		takes := len(strings.Fields(command.Use)) - 1
		args := strings.Repeat(" a", takes) + " extra"
		tests[name+args] = "error: extra is too much: the command is " + strings.TrimSuffix(command.UseLine(), " [flags]") + "\nSee " + command.CommandPath() + " --help\n"
	}
	for name := range known {
		t.Errorf("there is no command %s", name)
	}
	for args, want := range tests {
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

// allCommands are the commands below one, at every depth, that the documentation has.
func allCommands(of *cobra.Command) []*cobra.Command {
	var found []*cobra.Command
	for _, command := range of.Commands() {
		if !command.Hidden {
			found = append(found, command)
		}
		found = append(found, allCommands(command)...)
	}
	return found
}
