package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/arguments"
	"github.com/slipway-mcp/slipway/internal/plugin/fleet"
	"github.com/slipway-mcp/slipway/internal/text"
)

func (e *environment) call() *cobra.Command {
	var file string
	command := &cobra.Command{
		Use:   "call NAME TOOL [ARGUMENT=VALUE...]",
		Short: "Call a tool of a server",
		Long: "Call a tool of a server, through the API server and with your own rights. The command converts values\n" +
			"to the types of the tool's schema, which kubectl mcp tools NAME TOOL shows. Write lists and objects as JSON.",
		Example: "  kubectl mcp call tickets close_ticket id=4711 comment=done\n  kubectl mcp call tickets find --json query.json",
		Args:    atLeast(2, "name a server and a tool, as in kubectl mcp call tickets close_ticket id=4711"),
		RunE: func(command *cobra.Command, args []string) error {
			if err := e.checkOutput(outputJSON, outputYAML); err != nil {
				return err
			}
			return e.callTool(command.Context(), args[0], args[1], args[2:], file)
		},
	}
	command.Flags().StringVar(&file, "json", "", "`file` with the arguments, as one JSON object; - is standard input")
	e.outputFlag(command, "json or yaml")
	return e.calling(command)
}

// atLeast is a rule for arguments.
func atLeast(number int, message string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) < number {
			return fail(exitUnexpected, "See "+command.CommandPath()+" --help", "%s", message)
		}
		return nil
	}
}

func (e *environment) callTool(ctx context.Context, name, tool string, words []string, file string) error {
	api, server, err := e.server(ctx, name)
	if err != nil {
		return err
	}
	catalog, err := fleet.CatalogOf(ctx, api, server)
	if err != nil {
		return err
	}
	values, err := e.argumentsOf(catalog, server, tool, words, file)
	if err != nil {
		return err
	}
	session, err := e.converse(ctx, api, server)
	if err != nil {
		return err
	}
	defer session.end()
	session.refusal.Store(nil) // of what was refused before
	params := &mcp.CallToolParams{Name: tool, Arguments: values}
	params.SetProgressToken("kubectl-mcp")
	result, err := session.CallTool(ctx, params)
	if err != nil {
		return session.failed(err, server, fmt.Sprintf("call tool %s of MCPServer %s", tool, name))
	}
	if err := e.printResult(result); err != nil {
		return err
	}
	if result.IsError {
		return fail(exitTool, "", "tool %s says that it failed", tool)
	}
	return nil
}

// named is how a user names a server in another command.
func named(server *mcpv1alpha1.MCPServer) string { return "-n " + server.Namespace + " " + server.Name }

// failed gives an error of a call its exit code. The server itself has answered if the protocol has
// a code for it.
func (c *conversation) failed(err error, server *mcpv1alpha1.MCPServer, doing string) error {
	wrapped := fmt.Errorf("%s: %w", doing, err)
	if isAnswer(err) && !c.refusal.Load().isAboutCaller() {
		return &failure{exitTool, wrapped, "See what the server offers: kubectl mcp tools " + named(server) +
			". It may offer some of that only to clients that it can ask something, as by sampling, roots or elicitation on a terminal."}
	}
	return c.explain(wrapped, server)
}

// argumentsOf are the arguments of a call. What the catalog knows to be wrong is not sent.
func (e *environment) argumentsOf(catalog *fleet.Catalog, server *mcpv1alpha1.MCPServer, tool string, words []string, file string) (map[string]any, error) {
	isWhole := !catalog.IsSummary && catalog.Trimmed == ""
	i := slices.IndexFunc(catalog.Tools, func(t fleet.Tool) bool { return t.Name == tool })
	if i < 0 && isWhole {
		return nil, fail(exitTool, "See its tools: kubectl mcp tools "+named(server), "server %s has no tool %q", server.Name, tool)
	}
	var schema json.RawMessage
	if i >= 0 {
		schema = catalog.Tools[i].InputSchema
	}
	next := "See its arguments: kubectl mcp tools " + named(server) + " " + tool
	if file == "" {
		values, err := arguments.Parse(schema, words)
		if err != nil {
			return nil, &failure{exitUnexpected, err, next}
		}
		return values, e.tellUnknown(schema, values)
	}
	if len(words) > 0 {
		return nil, fail(exitUnexpected, "", "--json has all arguments: leave out %s", strings.Join(words, " "))
	}
	values, err := e.readArguments(file)
	if err == nil {
		err = arguments.Missing(schema, values)
	}
	if err != nil {
		return nil, &failure{exitUnexpected, err, next}
	}
	return values, e.tellUnknown(schema, values)
}

// tellUnknown names arguments that the tool does not know of. Most tools ignore them.
func (e *environment) tellUnknown(schema json.RawMessage, values map[string]any) error {
	unknown := arguments.Unknown(schema, values)
	if len(unknown) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(e.ErrOut, "The schema of the tool does not name: %s\n", text.Line(strings.Join(unknown, ", "), errorBytes))
	return err
}

func (e *environment) readArguments(file string) (map[string]any, error) {
	var content []byte
	var err error
	if file == "-" {
		content, err = io.ReadAll(e.In)
	} else {
		content, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read arguments: %w", err)
	}
	var values map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(content)))
	decoder.UseNumber()
	if err := decoder.Decode(&values); err != nil {
		return nil, fmt.Errorf("read arguments: %s must hold one JSON object: %w", file, err)
	}
	if _, err := decoder.Token(); values == nil || !errors.Is(err, io.EOF) {
		return nil, errors.New("read arguments: " + file + " must hold one JSON object")
	}
	return values, nil
}
