// Command launcher is PID 1 of the MCP server's container. It starts a stdio server once
// per session, and passes its standard input and output to the adapter in the other
// container. A server that speaks HTTP it starts once, and passes signals on to it. It
// imports nothing outside the standard library and this module, because it has to run
// in every image.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/version"
)

const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
	exitStart = 127 // as shells have it for a command that they cannot start

	socketVariable  = "SLIPWAY_SOCKET"
	defaultDeadline = 60 * time.Second
)

const usage = `The launcher starts an MCP server's command once per session, when the adapter
asks for it, and passes the process's standard input and output to the adapter.
What it starts is fixed by its own arguments.

Usage:
  launcher [flags] -- COMMAND [ARGUMENT...]
  launcher run -- COMMAND [ARGUMENT...]    start one process at once (an HTTP server)
  launcher drain [flags]                   wait until the adapter has drained (a preStop hook)

Flags:
`

const runUsage = `Start a command, pass all signals on to it, collect dead processes, and exit with
its exit code, or with 128 and the number of the signal that ended it. A command
that cannot start is exit code 127.

Usage:
  launcher run -- COMMAND [ARGUMENT...]
`

const drainUsage = `Wait until the adapter's sessions have ended. This is the preStop hook of the
server's container. It returns at once if no adapter answers, and never fails the
end of the pod.

Usage:
  launcher drain [flags]

Flags:
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "run":
			return runOne(args[1:], stdout, stderr)
		case "drain":
			return drain(args[1:], stdout, stderr)
		}
	}
	return launch(args, stdout, stderr)
}

func newFlags(name, text string, output io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(output)
	flags.Usage = func() {
		_, _ = fmt.Fprint(flags.Output(), text)
		flags.PrintDefaults()
	}
	return flags
}

func socketFlag(flags *flag.FlagSet) *string {
	return flags.String("socket", cmp.Or(os.Getenv(socketVariable), launcher.DefaultSocket),
		"`path` of the Unix socket on which the adapter listens; $"+socketVariable+" sets the default")
}

// parse says whether to go on, and otherwise the exit code. It writes help to standard
// output if the user asks for help.
func parse(flags *flag.FlagSet, args []string, stdout io.Writer) (code int, proceed bool) {
	for _, arg := range args {
		if arg == "--" {
			break
		}
		if arg == "-h" || arg == "-help" || arg == "--help" {
			flags.SetOutput(stdout)
		}
	}
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK, false
	case err != nil:
		return exitUsage, false
	}
	return exitOK, true
}

func launch(args []string, stdout, stderr io.Writer) int {
	flags := newFlags("launcher", usage, stderr)
	socket := socketFlag(flags)
	grace := flags.Duration("grace", launcher.DefaultGrace,
		"`time` that a process group has between TERM and KILL when the launcher ends or the adapter is gone")
	showVersion := flags.Bool("version", false, "print the version and exit")
	if code, proceed := parse(flags, args, stdout); !proceed {
		return code
	}
	if *showVersion {
		_, _ = fmt.Fprintln(stdout, "launcher", version.Get())
		return exitOK
	}
	if flags.NArg() == 0 {
		complain(stderr, "no command: put it behind the flags, as in launcher -- node server.js")
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// If the reader of standard error closes it, the sessions must go on. The launcher
	// catches the signal and does not ignore it, because its processes would inherit
	// that.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	options := launcher.Options{Command: flags.Args(), Grace: *grace, Stderr: stderr}
	if err := launcher.Run(ctx, *socket, options); err != nil {
		complain(stderr, err)
		return exitError
	}
	return exitOK
}

func runOne(args []string, stdout, stderr io.Writer) int {
	flags := newFlags("launcher run", runUsage, stderr)
	if code, proceed := parse(flags, args, stdout); !proceed {
		return code
	}
	if flags.NArg() == 0 || flags.Arg(0) == "" {
		complain(stderr, "no command: name it, as in launcher run -- node server.js")
		return exitUsage
	}
	exit, err := launcher.Init(flags.Args())
	if err != nil {
		complain(stderr, err)
		return exitStart
	}
	return exit.ProcessCode()
}

func drain(args []string, stdout, stderr io.Writer) int {
	flags := newFlags("launcher drain", drainUsage, stderr)
	socket := socketFlag(flags)
	deadline := flags.Duration("deadline", defaultDeadline, "longest `time` to wait")
	if code, proceed := parse(flags, args, stdout); !proceed {
		return code
	}
	if flags.NArg() > 0 {
		complain(stderr, fmt.Sprintf("drain takes no arguments, got %q", flags.Args()))
		return exitUsage
	}
	ctx, cancel := context.WithTimeout(context.Background(), *deadline)
	defer cancel()
	if err := launcher.Drain(ctx, *socket); err != nil {
		complain(stderr, err) // the pod ends anyway
	}
	return exitOK
}

func complain(stderr io.Writer, problem any) {
	_, _ = fmt.Fprintln(stderr, "launcher:", problem)
}
