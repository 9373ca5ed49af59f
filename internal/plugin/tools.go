package plugin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/fleet"
	"github.com/slipway-mcp/slipway/internal/plugin/search"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
	"github.com/slipway-mcp/slipway/internal/text"
)

// shownBytes bounds what a table shows of a description.
const shownBytes = 200

// offer is a tool of a server.
type offer struct {
	Namespace string          `json:"namespace"`
	Server    string          `json:"server"`
	Tool      json.RawMessage `json:"tool"`

	tool fleet.Tool
}

func (e *environment) tools() *cobra.Command {
	var query string
	var schema bool
	command := e.reading(&cobra.Command{
		Use:   "tools [NAME [TOOL]]",
		Short: "Show the tools of one server or of all, or find one",
		Long: "Show the tools of one server or of all, including servers that are stopped. The command reads the catalogs\n" +
			"that the manager keeps, and contacts no server.",
		Example: "  kubectl mcp tools\n  kubectl mcp tools tickets close_ticket\n  kubectl mcp tools -A --search \"close ticket\"",
		Args:    atMost(2),
		RunE: func(command *cobra.Command, args []string) error {
			offers, err := e.offers(command.Context(), args)
			if err != nil {
				return err
			}
			if len(args) == 2 {
				return e.printTool(offers, args[0], args[1], schema)
			}
			if query != "" {
				offers = find(offers, query)
			}
			return e.printTools(offers)
		},
	})
	command.Flags().StringVar(&query, "search", "", "show only tools that have these words in their name or description, the best first")
	command.Flags().BoolVar(&schema, "schema", false, "with TOOL: print the JSON schema of its arguments")
	return command
}

// offers are the tools of the servers that the command is about.
func (e *environment) offers(ctx context.Context, args []string) ([]offer, error) {
	api, err := e.client()
	if err != nil {
		return nil, err
	}
	servers, err := e.servers(ctx, api, args)
	if err != nil {
		return nil, err
	}
	var offers []offer
	summaries := 0
	for i := range servers {
		catalog, err := fleet.CatalogOf(ctx, api, &servers[i])
		if err != nil {
			return nil, err
		}
		if catalog.IsSummary && len(catalog.Tools) > 0 {
			summaries++
		}
		for _, tool := range catalog.Tools {
			offers = append(offers, offer{servers[i].Namespace, servers[i].Name, tool.Raw, tool})
		}
	}
	if summaries > 0 {
		_, _ = fmt.Fprintf(e.ErrOut, "Of %d of %d servers you see names and first sentences only: you may not read the ConfigMaps with their catalogs.\n", summaries, len(servers))
	}
	return offers, nil
}

// servers are those that the command is about: the one that is named, or all.
func (e *environment) servers(ctx context.Context, api client.Client, args []string) ([]mcpv1alpha1.MCPServer, error) {
	namespace, err := e.namespace()
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		list, err := fleet.Servers(ctx, api, namespace)
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}
	if e.allNamespaces {
		return nil, fail(exitUnexpected, "Use -n NAMESPACE with the name of a server.", "a server has one namespace, so -A and a name exclude each other")
	}
	server := mcpv1alpha1.MCPServer{}
	if err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: args[0]}, &server); err != nil {
		return nil, fmt.Errorf("get MCPServer %s: %w", args[0], err)
	}
	return []mcpv1alpha1.MCPServer{server}, nil
}

// server is the one of a name, and a client to go on with.
func (e *environment) server(ctx context.Context, name string) (client.Client, *mcpv1alpha1.MCPServer, error) {
	api, err := e.client()
	if err != nil {
		return nil, nil, err
	}
	servers, err := e.servers(ctx, api, []string{name})
	if err != nil {
		return nil, nil, err
	}
	return api, &servers[0], nil
}

// find returns the tools that a query finds, the best first.
func find(offers []offer, query string) []offer {
	documents := make([]search.Document, len(offers))
	for i := range offers {
		documents[i] = search.Document{Name: offers[i].tool.Name, Text: offers[i].tool.Title + " " + offers[i].tool.Description}
	}
	var found []offer
	for _, i := range search.Rank(documents, query) {
		found = append(found, offers[i])
	}
	return found
}

func (e *environment) printTools(offers []offer) error {
	names := make([]string, len(offers))
	for i := range offers {
		names[i] = offers[i].Server + "/" + text.Line(offers[i].tool.Name, shownBytes)
	}
	if offers == nil {
		offers = []offer{} // an empty list, and not null
	}
	if printed, err := e.printValue(map[string]any{"items": offers}, names); printed || err != nil {
		return err
	}
	if len(offers) == 0 {
		_, err := fmt.Fprintln(e.ErrOut, "No tools were found.")
		return err
	}
	header := []string{"SERVER", "TOOL", "HINTS", "DESCRIPTION"}
	if e.allNamespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	var rows []table.Row
	for _, offer := range offers {
		cells := []string{offer.Server, offer.tool.Name, cmp.Or(hints(offer.tool.Annotations), "-"), describe(offer.tool)}
		if e.allNamespaces {
			cells = append([]string{offer.Namespace}, cells...)
		}
		rows = append(rows, table.Row{Cells: cells})
	}
	return table.Print(e.Out, e.Screen, header, rows)
}

// describe is what a table has room for.
func describe(tool fleet.Tool) string {
	return text.FirstSentence(cmp.Or(tool.Description, tool.Title, tool.Annotations.Title), shownBytes)
}

// hints are what the server says of a tool that a user should know before a call.
func hints(annotations fleet.Annotations) string {
	var all []string
	is := func(hint *bool) bool { return hint != nil && *hint }
	if is(annotations.ReadOnlyHint) {
		all = append(all, "read-only")
	}
	if is(annotations.DestructiveHint) && !is(annotations.ReadOnlyHint) {
		all = append(all, "destructive")
	}
	if is(annotations.IdempotentHint) {
		all = append(all, "idempotent")
	}
	return strings.Join(all, ",")
}

// printTool prints everything about one tool.
func (e *environment) printTool(offers []offer, server, name string, schema bool) error {
	i := slices.IndexFunc(offers, func(o offer) bool { return o.tool.Name == name })
	if i < 0 {
		namespace, _ := e.namespace() // the tools come from there, so it is known
		return fail(exitTool, "See its tools: kubectl mcp tools -n "+namespace+" "+server, "server %s has no tool %q", server, name)
	}
	offer := offers[i]
	if printed, err := e.printValue(offer, []string{offer.Server + "/" + name}); printed || err != nil {
		return err
	}
	if schema {
		var indented bytes.Buffer
		if err := json.Indent(&indented, offer.tool.InputSchema, "", "  "); err != nil {
			return fail(exitUnreachable, "You may not read the ConfigMap with its catalog, or the catalog was too large for it.", "the schema of %s is not stored", name)
		}
		_, err := fmt.Fprintln(e.Out, text.Block(indented.String(), 1<<20))
		return err
	}
	return e.describeTool(offer)
}

func (e *environment) describeTool(offer offer) error {
	_, err := fmt.Fprintf(e.Out, "%s\n\n%s\n", text.Line(offer.tool.Name, shownBytes), text.Block(offer.tool.Description, errorBytes))
	if err != nil {
		return err
	}
	if marks := hints(offer.tool.Annotations); marks != "" {
		if _, err := fmt.Fprintf(e.Out, "\nHints: %s\n", marks); err != nil {
			return err
		}
	}
	var schema struct {
		Properties map[string]struct {
			Type        any    `json:"type"`
			Description string `json:"description"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	_ = json.Unmarshal(offer.tool.InputSchema, &schema) // one that cannot be read names no arguments
	if len(schema.Properties) == 0 {
		return nil
	}
	names := make([]string, 0, len(schema.Properties))
	for name := range schema.Properties {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(-cmp.Compare(mark(slices.Contains(schema.Required, a)), mark(slices.Contains(schema.Required, b))), cmp.Compare(a, b))
	})
	var rows []table.Row
	for _, name := range names {
		property := schema.Properties[name]
		rows = append(rows, table.Row{Cells: []string{
			name, typeOf(property.Type), mark(slices.Contains(schema.Required, name)), text.FirstSentence(property.Description, shownBytes),
		}})
	}
	if _, err := fmt.Fprintln(e.Out); err != nil {
		return err
	}
	return table.Print(e.Out, e.Screen, []string{"ARGUMENT", "TYPE", "REQUIRED", "DESCRIPTION"}, rows)
}

func mark(required bool) string {
	if required {
		return "yes"
	}
	return ""
}

// typeOf is the type of an argument as its schema has it: a name, or a list of names.
func typeOf(schema any) string {
	switch schema := schema.(type) {
	case string:
		return schema
	case []any:
		var names []string
		for _, name := range schema {
			names = append(names, fmt.Sprint(name))
		}
		return strings.Join(names, "|")
	default:
		return "any"
	}
}
