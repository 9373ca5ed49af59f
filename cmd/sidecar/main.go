// Command sidecar is the adapter: it offers an MCP server that speaks on standard
// input and output to HTTP clients, one process for each session.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/slipway-mcp/slipway/internal/version"
)

const usage = `Usage:
  sidecar serve [flags] -- COMMAND [ARGUMENTS]   offer the command, an MCP server on stdio, over HTTP
  sidecar serve [flags] --socket PATH            the same in a pod, where a launcher starts the command
  sidecar serve [flags] --transport streamable-http --upstream URL
                                                 stand in front of a server that speaks HTTP
  sidecar install DIRECTORY                      put the launcher there (postStart hook)
  sidecar drain                                  have the sidecar of this container drain (preStop hook)
  sidecar --version                              print the version

sidecar serve --help explains the flags.
`

// errUsage has been explained already.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "sidecar:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch {
	case command == "serve":
		return serve(ctx, args[1:])
	case command == "install" && len(args) == 2:
		return install(args[1])
	case command == "drain" && len(args) == 1:
		return drain()
	case command == "--version" && len(args) == 1:
		fmt.Println("sidecar", version.Get())
		return nil
	case command == "--help" || command == "-h":
		fmt.Print(usage)
		return nil
	}
	if command != "" {
		fmt.Fprintf(os.Stderr, "sidecar: cannot make sense of %q\n\n", args)
	}
	fmt.Fprint(os.Stderr, usage)
	return errUsage
}
