package plugin

import (
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
)

func (e *environment) read() *cobra.Command {
	command := &cobra.Command{
		Use: "read NAME URI", Short: "Read a resource of a server",
		Example: "  kubectl mcp read docs file:///guide.md",
		Args:    exactly(2, "name a server and a resource, as in kubectl mcp read docs file:///guide.md"),
		RunE: func(command *cobra.Command, args []string) error {
			if err := e.checkOutput(outputJSON, outputYAML); err != nil {
				return err
			}
			return e.ask(command.Context(), args[0], "read "+args[1], func(ctx context.Context, session *conversation) error {
				result, err := session.ReadResource(ctx, &mcp.ReadResourceParams{URI: args[1]})
				if err != nil {
					return err
				}
				if printed, err := e.printValue(result, nil); printed || err != nil {
					return err
				}
				for _, contents := range result.Contents {
					if err := e.show(resource(contents)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	e.outputFlag(command, "json or yaml")
	return command
}

func (e *environment) prompt() *cobra.Command {
	command := &cobra.Command{
		Use: "prompt NAME PROMPT [ARGUMENT=VALUE...]", Short: "Get a prompt of a server",
		Example: "  kubectl mcp prompt tickets summarize project=web",
		Args:    atLeast(2, "name a server and a prompt, as in kubectl mcp prompt tickets summarize"),
		RunE: func(command *cobra.Command, args []string) error {
			if err := e.checkOutput(outputJSON, outputYAML); err != nil {
				return err
			}
			values := map[string]string{}
			for _, word := range args[2:] {
				name, value, ok := strings.Cut(word, "=")
				if !ok {
					return fail(exitUnexpected, "See "+command.CommandPath()+" --help", "%q is no argument: write it as name=value", word)
				}
				values[name] = value
			}
			return e.ask(command.Context(), args[0], "get prompt "+args[1], func(ctx context.Context, session *conversation) error {
				result, err := session.GetPrompt(ctx, &mcp.GetPromptParams{Name: args[1], Arguments: values})
				if err != nil {
					return err
				}
				if printed, err := e.printValue(result, nil); printed || err != nil {
					return err
				}
				for _, message := range result.Messages {
					if err := e.show(fmt.Sprintf("%s: %s", message.Role, words(message.Content))); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	e.outputFlag(command, "json or yaml")
	return command
}

// ask has one exchange with a server.
func (e *environment) ask(ctx context.Context, name, doing string, exchange func(context.Context, *conversation) error) error {
	api, server, err := e.server(ctx, name)
	if err != nil {
		return err
	}
	session, err := e.converse(ctx, api, server)
	if err != nil {
		return err
	}
	defer session.end()
	if err := exchange(ctx, session); err != nil {
		return session.failed(err, server, doing+" of MCPServer "+name)
	}
	return nil
}
