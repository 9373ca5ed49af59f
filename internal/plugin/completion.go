package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/fleet"
	"github.com/slipway-mcp/slipway/internal/text"
)

const (
	// completionPatience is how long a user who presses the tab key waits for the cluster. With the start of
	// the program it is less than a second.
	completionPatience = 700 * time.Millisecond
	explanationBytes   = 100
)

// completable is what a shell takes as it is. A server chooses the names of its tools, and shells evaluate
// words that are on the command line, so any other name is left for the user to type.
var completable = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,][A-Za-z0-9_./:@%+,=~-]{0,255}$`)

// addCompletion says how the arguments and flags of all commands are completed. Both come from what the
// help says, so that a new command or value needs nothing here.
func (e *environment) addCompletion(command *cobra.Command) {
	if places := placesOf(command); command.ValidArgsFunction == nil && command.HasParent() && !takesFiles(places) {
		command.ValidArgsFunction = e.completeArguments(places)
	}
	command.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		if values := valuesOf(flag); len(values) > 0 {
			// It fails only for flags that have a completion.
			_ = command.RegisterFlagCompletionFunc(flag.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	for _, child := range command.Commands() {
		e.addCompletion(child)
	}
}

// addGlobalCompletion says how the flags that all commands have are completed.
func (e *environment) addGlobalCompletion(root *cobra.Command) {
	for flag, find := range map[string]finder{
		"namespace": func(s *shelf) ([]entry, error) { return plain(fleet.NamespaceNames(s.ctx, s.api)) },
		"context":   func(*shelf) ([]entry, error) { return e.contexts() },
	} {
		_ = root.RegisterFlagCompletionFunc(flag, func(command *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return e.complete(command, find, args, typed), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// placesOf are the arguments of a command as its help has them, such as NAME, TOOL and ARGUMENT=VALUE...
func placesOf(command *cobra.Command) []string {
	return strings.Fields(strings.NewReplacer("[", " ", "]", " ").Replace(command.Use))[1:]
}

func takesFiles(places []string) bool {
	return slices.ContainsFunc(places, func(place string) bool { return strings.HasPrefix(place, "FILE") })
}

// valuesOf are the values that a flag can have, if its help lists them after a colon.
func valuesOf(flag *pflag.Flag) []string {
	_, list, found := strings.Cut(flag.Usage, ": ")
	if !found || !strings.Contains(list, " or ") {
		return nil
	}
	values := strings.Split(strings.ReplaceAll(list, " or ", ", "), ", ")
	if slices.ContainsFunc(values, func(value string) bool { return !completable.MatchString(value) }) {
		return nil // a sentence
	}
	return values
}

// entry is something to choose from.
type entry struct{ word, explanation string }

// shelf is what entries are found in.
type shelf struct {
	ctx  context.Context
	api  client.Client
	e    *environment
	args []string // before the one that is completed
}

type finder func(*shelf) ([]entry, error)

// finders are by what the help calls an argument.
var finders = map[string]finder{
	"NAME": (*shelf).servers, "TOOL": (*shelf).tools, "PROMPT": (*shelf).prompts, "URI": (*shelf).resources,
}

// completeArguments completes the arguments of a command that has some places for them.
func (e *environment) completeArguments(places []string) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		place := ""
		if len(args) < len(places) {
			place = places[len(args)]
		} else if len(places) > 0 && strings.HasSuffix(places[len(places)-1], "...") {
			place = places[len(places)-1]
		}
		place = strings.TrimSuffix(place, "...")
		find, directive := finders[place], cobra.ShellCompDirectiveNoFileComp
		if place == "ARGUMENT=VALUE" {
			find = (*shelf).toolArguments
			if slices.Contains(places, "PROMPT") {
				find = (*shelf).promptArguments
			}
			directive |= cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveKeepOrder
		}
		return e.complete(command, find, args, typed), directive
	}
}

// complete finds what a word can become. A cluster that does not answer in time, or refuses to, has nothing
// to choose from: an error would end up in the middle of what the user types.
func (e *environment) complete(command *cobra.Command, find finder, args []string, typed string) []cobra.Completion {
	if find == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(command.Context(), completionPatience)
	defer cancel()
	found := make(chan []entry, 1)
	go func() { // not all that is slow knows ctx: programs that get credentials do not
		entries, err := e.find(ctx, find, args)
		if err != nil {
			entries = nil
		}
		found <- entries
	}()
	select {
	case entries := <-found:
		return choose(entries, args, typed)
	case <-ctx.Done():
		return nil
	}
}

func (e *environment) find(ctx context.Context, find finder, args []string) ([]entry, error) {
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout = completionPatience
	api, err := client.New(config, client.Options{Scheme: fleet.Scheme(), Mapper: fleet.Mapper()})
	if err != nil {
		return nil, err
	}
	return find(&shelf{ctx, api, e, args})
}

// choose returns the entries that begin with what the user typed, but for those that are there.
func choose(entries []entry, args []string, typed string) []cobra.Completion {
	var chosen []cobra.Completion
	for _, entry := range entries {
		isThere := slices.ContainsFunc(args, func(arg string) bool {
			return arg == entry.word || strings.HasSuffix(entry.word, "=") && strings.HasPrefix(arg, entry.word)
		})
		if !strings.HasPrefix(entry.word, typed) || !completable.MatchString(entry.word) || isThere {
			continue
		}
		word := entry.word
		if words := explanation(entry.explanation); words != "" {
			word = cobra.CompletionWithDesc(word, words)
		}
		chosen = append(chosen, word)
	}
	return chosen
}

// explanation is the first sentence of a text, without what a shell could take for more than text.
func explanation(words string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("`$\\\"'", r) {
			return -1
		}
		return r
	}, text.FirstSentence(words, explanationBytes))
}

// plain are entries that need no explanation.
func plain(words []string, err error) ([]entry, error) {
	entries := make([]entry, len(words))
	for i, word := range words {
		entries[i].word = word
	}
	return entries, err
}

func (e *environment) contexts() ([]entry, error) {
	raw, err := e.flags.ToRawKubeConfigLoader().RawConfig()
	return plain(slices.Sorted(maps.Keys(raw.Contexts)), err)
}

func (s *shelf) servers() ([]entry, error) {
	namespace, err := s.e.namespace()
	if err != nil || namespace == "" { // with -A, no command takes a name
		return nil, err
	}
	return plain(fleet.ServerNames(s.ctx, s.api, namespace))
}

// server is the one that the command line names.
func (s *shelf) server() (*mcpv1alpha1.MCPServer, error) {
	servers, err := s.e.servers(s.ctx, s.api, s.args[:1])
	if err != nil {
		return nil, err
	}
	return &servers[0], nil
}

func (s *shelf) catalog() (*fleet.Catalog, error) {
	server, err := s.server()
	if err != nil {
		return nil, err
	}
	return fleet.CatalogOf(s.ctx, s.api, server)
}

func (s *shelf) tools() ([]entry, error) {
	catalog, err := s.catalog()
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, tool := range catalog.Tools {
		entries = append(entries, entry{tool.Name, cmp.Or(tool.Description, tool.Title)})
	}
	return entries, nil
}

// toolArguments are those of the schema, required ones first.
func (s *shelf) toolArguments() ([]entry, error) {
	catalog, err := s.catalog()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(catalog.Tools, func(tool fleet.Tool) bool { return tool.Name == s.args[1] })
	if i < 0 {
		return nil, nil
	}
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if err := json.Unmarshal(catalog.Tools[i].InputSchema, &schema); err != nil {
		return nil, err
	}
	names := slices.SortedFunc(maps.Keys(schema.Properties), func(a, b string) int {
		return cmp.Or(-cmp.Compare(mark(slices.Contains(schema.Required, a)), mark(slices.Contains(schema.Required, b))), cmp.Compare(a, b))
	})
	var entries []entry
	for _, name := range names {
		var property struct {
			Description string `json:"description"`
		}
		_ = json.Unmarshal(schema.Properties[name], &property) // true is a schema, too
		entries = append(entries, entry{name + "=", property.Description})
	}
	return entries, nil
}

func (s *shelf) promptsAndResources() ([]fleet.Prompt, []fleet.Resource, error) {
	server, err := s.server()
	if err != nil {
		return nil, nil, err
	}
	return fleet.PromptsAndResourcesOf(s.ctx, s.api, server)
}

func (s *shelf) prompts() ([]entry, error) {
	prompts, _, err := s.promptsAndResources()
	var entries []entry
	for _, prompt := range prompts {
		entries = append(entries, entry{prompt.Name, prompt.Description})
	}
	return entries, err
}

func (s *shelf) promptArguments() ([]entry, error) {
	prompts, _, err := s.promptsAndResources()
	i := slices.IndexFunc(prompts, func(prompt fleet.Prompt) bool { return prompt.Name == s.args[1] })
	if err != nil || i < 0 {
		return nil, err
	}
	var entries []entry
	for _, argument := range prompts[i].Arguments {
		entries = append(entries, entry{argument.Name + "=", argument.Description})
	}
	return entries, nil
}

func (s *shelf) resources() ([]entry, error) {
	_, resources, err := s.promptsAndResources()
	var entries []entry
	for _, resource := range resources {
		entries = append(entries, entry{resource.URI, resource.Name})
	}
	return entries, err
}
