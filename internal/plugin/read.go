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
		Use: "read NAME [URI]", Short: "Read a resource of a server, or show which it has",
		Long:    "Read a resource of a server. Without a URI, show the resources of its catalog.",
		Example: "  kubectl mcp read docs\n  kubectl mcp read docs file:///guide.md",
		Args:    between(1, 2, "name a server, as in kubectl mcp read docs"),
		RunE: func(command *cobra.Command, args []string) error {
			if len(args) == 1 {
				return e.listResources(command.Context(), args[0])
			}
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
	e.outputFlag(command, "json, yaml or name")
	return e.calling(command)
}

func (e *environment) prompt() *cobra.Command {
	command := &cobra.Command{
		Use: "prompt NAME [PROMPT [ARGUMENT=VALUE...]]", Short: "Get a prompt of a server, or show which it has",
		Long:    "Get a prompt of a server. Without a name, show the prompts of its catalog and their arguments.",
		Example: "  kubectl mcp prompt tickets\n  kubectl mcp prompt tickets summarize project=web",
		Args:    atLeast(1, "name a server, as in kubectl mcp prompt tickets"),
		RunE: func(command *cobra.Command, args []string) error {
			if len(args) == 1 {
				return e.listPrompts(command.Context(), args[0])
			}
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
	e.outputFlag(command, "json, yaml or name")
	return e.calling(command)
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
