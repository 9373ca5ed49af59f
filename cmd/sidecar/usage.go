package main

import (
	"flag"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// usageError is a mistake of the user on the command line.
type usageError struct {
	error
	see string // the command that prints help
}

func misused(see, format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...), see}
}

const (
	helpCommand  = "adapter help"
	serveCommand = "adapter serve --help"
)

// newFlags returns flags that print nothing when the command line is wrong.
func newFlags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return flags
}

// flagName finds the dash before a flag's name in an error of package flag.
var flagName = regexp.MustCompile(`(not defined: |for flag |for |an argument: )-`)

// flagError writes flags with two dashes, as users do.
func flagError(err error) error {
	return misused(serveCommand, "%s", flagName.ReplaceAllString(err.Error(), "$1--"))
}

const serveIntroduction = `Usage:
  adapter serve [flags] -- COMMAND [ARGUMENTS]
  adapter serve [flags] --socket PATH
  adapter serve [flags] --transport streamable-http|sse --upstream URL

SIGINT or SIGTERM has it take no more sessions, finish calls in flight within
--drain-timeout, and end. A second signal ends it at once.

Flags:
`

// explain writes the help of all flags.
func explain(w io.Writer, flags *flag.FlagSet) error {
	var text strings.Builder
	text.WriteString(serveIntroduction)
	flags.VisitAll(func(f *flag.Flag) {
		value, about := flag.UnquoteUsage(f)
		fmt.Fprintf(&text, "  --%s\n        %s", strings.TrimSpace(f.Name+" "+value), about)
		if f.DefValue != "" && f.DefValue != "false" {
			fmt.Fprintf(&text, " (default %s)", f.DefValue)
		}
		text.WriteString("\n")
	})
	_, err := io.WriteString(w, text.String())
	return err
}
