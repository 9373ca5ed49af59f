package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/slipway-mcp/slipway/internal/plugin/inspector"
	"github.com/slipway-mcp/slipway/internal/plugin/node"
)

// inspectOptions are how the user wants to inspect a server.
type inspectOptions struct {
	port               int
	commandLine, opens bool
}

func (e *environment) inspect() *cobra.Command {
	var options inspectOptions
	command := &cobra.Command{
		Use:   "inspect NAME [-- ARGUMENT...]",
		Short: "Look at a server with the official MCP Inspector",
		Long: "Make a server of the cluster available at a port of this machine, as connect does, start the official MCP\n" +
			"Inspector, and print the link at which it shows the server. Ctrl+C ends both. npx downloads the Inspector\n" +
			"from npm. Without Node.js, the command says how to start it elsewhere. With --cli, the Inspector runs with\n" +
			"the arguments, prints the result and ends.",
		Example: "  kubectl mcp inspect tickets\n  kubectl mcp inspect tickets --cli -- --method tools/call --tool-name find --tool-arg query=printer",
		Args:    atLeast(1, "name a server, as in kubectl mcp inspect tickets"),
		RunE: func(command *cobra.Command, args []string) error {
			switch {
			case options.commandLine && options.opens:
				return fail(exitUnexpected, "Leave out one of them.", "--cli has no page that --open could open")
			case options.commandLine:
				return e.inspectByArguments(command.Context(), args[0], options.port, args[1:])
			case len(args) > 1:
				return fail(exitUnexpected, "See kubectl mcp inspect --help", "arguments of the Inspector need --cli")
			}
			return e.inspectInBrowser(command.Context(), args[0], options)
		},
	}
	command.Flags().IntVar(&options.port, "port", 0, "port of this machine for the server; 0 picks a free one")
	command.Flags().BoolVar(&options.commandLine, "cli", false, "run the Inspector without its page, with the arguments behind --; none are --method tools/list")
	command.Flags().BoolVar(&options.opens, "open", false, "open the link in your browser")
	return e.calling(command)
}

// inspectInBrowser serves a server and an Inspector until ctx ends.
func (e *environment) inspectInBrowser(ctx context.Context, name string, options inspectOptions) error {
	line, err := e.lifeline(ctx, name)
	if err != nil {
		return err
	}
	defer line.close()
	sessions := &openSessions{RoundTripper: line.transport()}
	defer sessions.end(ctx)
	local, err := listen(ctx, sessions, options.port, line.tokens != nil)
	if err != nil {
		return err
	}
	defer local.close()
	line.announce(local)
	if err := node.Check(ctx, inspector.Package); err != nil {
		return e.inspectElsewhere(ctx, local, err)
	}
	_, _ = fmt.Fprintf(e.ErrOut, "Starting %s. The first time, npx downloads it.\n", inspector.Package)
	return e.serveInspector(ctx, local, options.opens)
}

// inspectElsewhere serves a server until ctx ends, for an Inspector that the user starts.
func (e *environment) inspectElsewhere(ctx context.Context, local *loopback, cause error) error {
	if _, isUnfit := errors.AsType[*node.UnfitError](cause); !isUnfit {
		return cause
	}
	token := inspector.NewToken()
	_, _ = fmt.Fprintf(e.ErrOut, "The Inspector does not start here: %v.\nStart it yourself, where %s leads to this machine:\n  %s\nThen open this link:\n",
		cause, local.url, inspector.CommandLine(token))
	if _, err := fmt.Fprintln(e.Out, inspector.Link(inspector.DefaultPage, token, local.url)); err != nil {
		return err
	}
	return local.wait(ctx)
}

// serveInspector runs the Inspector until ctx ends.
func (e *environment) serveInspector(ctx context.Context, local *loopback, opens bool) (err error) {
	output := node.Harmless(e.ErrOut)
	defer func() { err = errors.Join(err, output.Flush()) }() // before the advice that refers to it
	started, err := inspector.Start(ctx, local.url, output)
	if ctx.Err() != nil && err != nil {
		return nil // the user has had enough
	}
	if err != nil {
		return fail(exitUnexpected, "See what npx says above. Does this work? "+inspector.Package.CommandLine("--version"), "%w", err)
	}
	defer func() { err = errors.Join(err, started.Close()) }()
	if _, err := fmt.Fprintln(e.Out, started.Link); err != nil {
		return err
	}
	if opens {
		openBrowser(started.Link, output)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-local.ended:
		return fmt.Errorf("serve: %w", err)
	case <-started.Done():
		if ctx.Err() != nil { // which has ended it
			return nil
		}
		return fail(exitUnexpected, "See what it says above.", "the Inspector ended by itself")
	}
}

// inspectByArguments runs the Inspector once.
func (e *environment) inspectByArguments(ctx context.Context, name string, port int, args []string) error {
	if err := needNode(ctx, inspector.Package); err != nil {
		return err
	}
	line, err := e.lifeline(ctx, name)
	if err != nil {
		return err
	}
	defer line.close()
	sessions := &openSessions{RoundTripper: line.transport()}
	defer sessions.end(ctx) // the Inspector leaves its own open
	local, err := listen(ctx, sessions, port, line.tokens != nil)
	if err != nil {
		return err
	}
	defer local.close()
	return e.runInspector(ctx, local.url, args)
}

// runInspector runs the Inspector once. Its exit code becomes ours, and has the same meaning.
func (e *environment) runInspector(ctx context.Context, url string, args []string) (err error) {
	streams, errOut := node.Streams{Out: e.Out}, node.Harmless(e.ErrOut)
	streams.ErrOut = errOut
	defer func() { err = errors.Join(err, errOut.Flush()) }()
	if e.Screen.IsTerminal {
		out := node.Harmless(e.Out)
		defer func() { err = errors.Join(err, out.Flush()) }()
		streams.Out = out
	}
	code, err := inspector.CommandLineMode(ctx, url, streams, args...)
	switch {
	case ctx.Err() != nil: // whatever it made of that
		return fail(exitUnexpected, "Run the command again.", "the Inspector was interrupted")
	case err != nil:
		return err
	case code < 0:
		return fail(exitUnexpected, "See what it says above.", "a signal ended the Inspector")
	case code != exitOK:
		return fail(code, "See what it says above.", "the Inspector ended with exit code %d", code)
	}
	return nil
}

// needNode fails if a package cannot run here.
func needNode(ctx context.Context, of node.Package) error {
	err := node.Check(ctx, of)
	if unfit, ok := errors.AsType[*node.UnfitError](err); ok {
		return fail(exitUnexpected, "Install Node.js from https://nodejs.org, and put it on your PATH.", "%w", unfit)
	}
	return err
}

// openBrowser opens a page in the browser of the user, and says so if that fails. Some programs that open a
// page become the browser: we do not wait for them, and Ctrl+C does not end them.
func openBrowser(link string, say io.Writer) {
	program := map[string][]string{"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"}}[runtime.GOOS]
	if program == nil {
		program = []string{"xdg-open"}
	}
	failed := func(err error) { _, _ = fmt.Fprintf(say, "Open the link yourself: run %s: %v.\n", program[0], err) }
	command := exec.CommandContext(context.Background(), program[0], append(program[1:], link)...) //nolint:gosec // the link is our own, and no shell reads it
	node.Separate(command)
	if err := command.Start(); err != nil {
		failed(err)
		return
	}
	go func() {
		if err := command.Wait(); err != nil {
			failed(err)
		}
	}()
}
