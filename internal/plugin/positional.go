package plugin

import (
	"strings"

	"github.com/spf13/cobra"
)

// exactly is a rule for arguments: a command that ignored one would do something else than the user asked for.
func exactly(number int, message string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		return between(number, number, message)(command, args)
	}
}

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
