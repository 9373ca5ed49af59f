package plugin

import (
	"context"
	"fmt"
	"strings"

	"github.com/slipway-mcp/slipway/internal/plugin/fleet"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

// listResources shows the resources of a server, from its catalog.
func (e *environment) listResources(ctx context.Context, name string) error {
	_, resources, err := e.offered(ctx, name)
	if err != nil {
		return err
	}
	var names []string
	var rows []table.Row
	for _, resource := range resources {
		names = append(names, resource.URI)
		rows = append(rows, table.Row{Cells: []string{resource.URI, orDash(resource.Name), orDash(resource.Description)}})
	}
	return e.printOffered(name, "resources", map[string]any{"items": resources}, names, []string{"URI", "NAME", "DESCRIPTION"}, rows)
}

// listPrompts shows the prompts of a server, from its catalog.
func (e *environment) listPrompts(ctx context.Context, name string) error {
	prompts, _, err := e.offered(ctx, name)
	if err != nil {
		return err
	}
	var names []string
	var rows []table.Row
	for i := range prompts {
		names = append(names, prompts[i].Name)
		rows = append(rows, table.Row{Cells: []string{prompts[i].Name, orDash(argumentWords(&prompts[i])), orDash(prompts[i].Description)}})
	}
	return e.printOffered(name, "prompts", map[string]any{"items": prompts}, names, []string{"PROMPT", "ARGUMENTS", "DESCRIPTION"}, rows)
}

// argumentWords are the arguments of a prompt as a user types them. Those that may be left out are in brackets.
func argumentWords(prompt *fleet.Prompt) string {
	var words []string
	for _, argument := range prompt.Arguments {
		if argument.Required {
			words = append(words, argument.Name+"=")
		} else {
			words = append(words, "["+argument.Name+"=]")
		}
	}
	return strings.Join(words, " ")
}

func (e *environment) offered(ctx context.Context, name string) ([]fleet.Prompt, []fleet.Resource, error) {
	if err := e.checkOutput(outputJSON, outputYAML, outputName, outputWide); err != nil {
		return nil, nil, err
	}
	api, server, err := e.server(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	return fleet.PromptsAndResourcesOf(ctx, api, server)
}

func (e *environment) printOffered(server, what string, value any, names, header []string, rows []table.Row) error {
	if printed, err := e.printValue(value, names); printed || err != nil {
		return err
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintf(e.ErrOut, "MCPServer %s offers no %s.\n", server, what)
		return err
	}
	return table.Print(e.Out, e.Screen, header, rows)
}
