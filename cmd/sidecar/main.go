// Command sidecar is the adapter: it stands between MCP clients, which speak HTTP, and an MCP server.
// It starts the processes of a server that speaks on standard input and output.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/slipway-mcp/slipway/internal/version"
)

const usage = `Usage:
  adapter serve [flags] -- COMMAND [ARGUMENTS]   offer the command, an MCP server on stdio, over HTTP
  adapter serve [flags] --socket PATH            the same in a pod, where a launcher starts the command
  adapter serve [flags] --transport streamable-http --upstream URL
                                                 stand in front of a server that speaks HTTP
  adapter install DIRECTORY                      put the launcher there (postStart hook)
  adapter drain                                  have the adapter of this container drain (preStop hook)
  adapter --version                              print the version
  adapter help                                   print this

adapter serve --help explains the flags.
`

func main() {
	err := run(context.Background(), os.Args[1:])
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "adapter:", err)
	if misuse, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintln(os.Stderr, "see", misuse.see)
		os.Exit(2)
	}
	os.Exit(1)
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	command, args := args[0], args[1:]
	switch command {
	case "serve":
		return serve(ctx, args)
	case "install":
		if len(args) != 1 {
			return misused(helpCommand, "install: name one directory to put the launcher into, as in: adapter install /slipway")
		}
		return install(args[0])
	case "drain":
		if len(args) > 0 {
			return misused(helpCommand, "drain takes no arguments, and was given %q", args)
		}
		return drain()
	case "--version":
		fmt.Println("adapter", version.Get())
		return nil
	case "help", "--help", "-h":
		fmt.Print(usage)
		return nil
	}
	return misused(helpCommand, "there is no command %q", command)
}
