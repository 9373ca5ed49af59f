package plugin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// Reference is the documentation of all commands, in Markdown. The flags that all commands of kubectl
// have are left out.
func Reference() string {
	e := &environment{flags: genericclioptions.NewConfigFlags(true)}
	var page strings.Builder
	for _, command := range e.root().Commands() {
		if command.Name() == "help" || command.Name() == "completion" {
			continue
		}
		describeCommand(&page, command)
		for _, part := range command.Commands() {
			describeCommand(&page, part)
		}
	}
	return page.String()
}

func describeCommand(page *strings.Builder, command *cobra.Command) {
	path := strings.TrimPrefix(command.CommandPath(), "kubectl mcp ")
	fmt.Fprintf(page, "\n## %s\n\n`%s`\n\n", path, strings.TrimSuffix(command.UseLine(), " [flags]"))
	text := command.Long
	if text == "" {
		text = command.Short + "."
	}
	page.WriteString(strings.TrimSpace(text) + "\n")
	if command.Example != "" {
		page.WriteString("\n```sh\n")
		for line := range strings.Lines(command.Example) {
			page.WriteString(strings.TrimPrefix(line, "  "))
		}
		page.WriteString("\n```\n")
	}
	var rows []string
	command.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Name == "help" {
			return
		}
		name, usage := pflag.UnquoteUsage(flag)
		words := "--" + flag.Name
		if flag.Shorthand != "" {
			words = "-" + flag.Shorthand + ", " + words
		}
		if name != "" {
			words += " " + strings.ToUpper(name)
		}
		if flag.DefValue != "" && flag.DefValue != "false" && flag.DefValue != "[]" {
			usage += " (default " + flag.DefValue + ")"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", words, usage))
	})
	if len(rows) > 0 {
		page.WriteString("\n| flag | what |\n|---|---|\n" + strings.Join(rows, ""))
	}
}
