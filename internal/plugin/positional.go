package plugin

import (
	"strings"

	"github.com/spf13/cobra"
)

// exactlyOne is a rule for arguments: a command that ignored one would do something else than the user asked for.
func exactlyOne(message string) cobra.PositionalArgs { return between(1, 1, message) }

// between is a rule for arguments.
func between(least, most int, message string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if err := atLeast(least, message)(command, args); err != nil {
			return err
		}
		return atMost(most)(command, args)
	}
}

// atMost is a rule for arguments.
func atMost(number int) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) <= number {
			return nil
		}
		return fail(exitUnexpected, "See "+command.CommandPath()+" --help", "%s is too much: the command is %s", strings.Join(args[number:], " "), strings.TrimSuffix(command.UseLine(), " [flags]"))
	}
}
