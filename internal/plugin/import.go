package plugin

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/slipway-mcp/slipway/internal/plugin/manifest"
	"github.com/slipway-mcp/slipway/internal/text"
)

func (e *environment) imports() *cobra.Command {
	var files []string
	var strict bool
	var options manifest.Options
	command := &cobra.Command{
		Use:   "import -f FILE...",
		Short: "Make MCPServers of the configuration of a client, or of manifests of another operator",
		Long: "Convert the configuration of Claude Desktop, Claude Code, Cursor or VS Code, or manifests of ToolHive, kmcp or\n" +
			"the MCP lifecycle operator, to MCPServers, and print them. The command applies nothing. On standard error, it\n" +
			"names what it cannot carry over, and what it carries over in another form. For values that look like secrets,\n" +
			"it prints Secrets that you fill in.",
		Example: "  kubectl mcp import -f claude_desktop_config.json > servers.yaml\n  kubectl mcp import -f old.yaml --strict | kubectl apply -f -",
		Args:    atMost(0),
		RunE: func(*cobra.Command, []string) error {
			return e.importFiles(files, options, strict)
		},
	}
	command.Flags().StringArrayVarP(&files, "filename", "f", nil, "`file` to read; - is standard input; may be repeated")
	command.Flags().BoolVar(&strict, "strict", false, "fail if something is not carried over, and print nothing")
	command.Flags().BoolVar(&options.WithSecrets, "with-secrets", false, "put the values of secrets into the Secrets, too")
	return command
}

func (e *environment) importFiles(names []string, options manifest.Options, strict bool) error {
	if len(names) == 0 {
		return fail(exitUnexpected, "See kubectl mcp import --help", "name a file, as in kubectl mcp import -f claude_desktop_config.json")
	}
	if given := e.flags.Namespace; given != nil {
		options.Namespace = *given // without -n, kubectl apply chooses
	}
	var files []manifest.File
	for _, name := range names {
		content, err := e.readFile(name)
		if err != nil {
			return fail(exitUnexpected, "", "%w", err)
		}
		files = append(files, manifest.File{Name: name, Content: content})
	}
	result, err := manifest.Import(files, options)
	if err != nil {
		return fail(exitUnexpected, "", "%w", err)
	}
	for _, remark := range result.Dropped {
		e.remark("not carried over", remark)
	}
	if strict && len(result.Dropped) > 0 {
		return fail(exitUnexpected, "Leave out --strict to print the rest.", "%d values are not carried over", len(result.Dropped))
	}
	for _, remark := range result.Changed {
		e.remark("check", remark)
	}
	return manifest.Encode(e.Out, result)
}

func (e *environment) readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(e.In)
	}
	return os.ReadFile(name)
}

// remark tells of a value that does not arrive as it was.
func (e *environment) remark(what string, r manifest.Remark) {
	where := r.Object
	if r.Field != "" {
		where += " " + r.Field
	}
	_, _ = fmt.Fprintf(e.ErrOut, "%s: %s: %s\n", what, text.Line(where, errorBytes), text.Line(r.Why, errorBytes))
}
