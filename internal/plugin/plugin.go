// Package plugin is kubectl mcp: what people do with MCP servers every day. Commands that read take
// everything from MCPServers and their catalogs, and ask no pod.
package plugin

import (
	"cmp"
	"context"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-mcp/slipway/internal/plugin/fleet"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
	"github.com/slipway-mcp/slipway/internal/version"
)

// Terminal is what a command reads from and writes to.
type Terminal struct {
	genericiooptions.IOStreams
	Screen table.Screen // of Out
	Now    func() time.Time
	// Program is the file that was called. It may have several names.
	Program string
}

// Run runs the command of some arguments, without the name of the program, and returns its exit code.
func Run(ctx context.Context, args []string, terminal Terminal) int {
	e := &environment{Terminal: terminal, flags: genericclioptions.NewConfigFlags(true)}
	var completing bool
	if e.name, completing = calledAs(terminal.Program); completing {
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
		e.ErrOut = io.Discard // it would end up in the middle of what the user types
	}
	root := e.root()
	root.SetArgs(args)
	root.SetIn(e.In)
	root.SetOut(e.Out)
	root.SetErr(e.ErrOut)
	if err := root.ExecuteContext(ctx); err != nil {
		failed := e.renamed(explain(err))
		failed.tell(e.ErrOut, e.output == outputJSON)
		return failed.code
	}
	return exitOK
}

// environment is what all commands share.
type environment struct {
	Terminal
	name          string // of the plugin; empty is the usual one
	flags         *genericclioptions.ConfigFlags
	output        string
	allNamespaces bool
	account       string // ServiceAccount to call servers as, as the user names it
}

func (e *environment) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-" + cmp.Or(e.name, usualName),
		Short: "Look at, call and look after the MCP servers of a cluster",
		Long: "kubectl mcp shows the MCP servers that Slipway runs, and what they offer.\n\n" +
			"Exit codes: 0 success; 1 wrong usage or an unexpected error; 3 rights or credentials are missing;\n" +
			"4 the cluster, Slipway or the server is not there or not ready; 5 the tool failed or does not exist,\n" +
			"or a scenario of the conformance suite failed.",
		SilenceErrors: true, SilenceUsage: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: e.called()},
		Version:     version.Get().Version,
	}
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fail(exitUnexpected, "See "+command.CommandPath()+" --help", "%w", err)
	})
	e.flags.AddFlags(root.PersistentFlags())
	root.AddCommand(
		e.list(),
		e.tools(),
		e.call(),
		e.read(),
		e.prompt(),
		e.sessions(),
		e.connect(),
		e.inspect(),
		e.conformance(),
		e.logs(),
		e.top(),
		e.doctor(),
		e.create(),
		e.imports(),
		e.report(),
		e.refresh(),
		e.suspend(),
		e.resume(),
	)
	root.SetUsageTemplate(withoutGlobalFlags(root.UsageTemplate()))
	e.rename(root)
	e.addCompletion(root)
	e.addGlobalCompletion(root)
	return root
}

// globalFlags is the part of cobra's help that lists the flags of the root command: some twenty of kubectl,
// below those few that the user looks for.
var globalFlags = regexp.MustCompile(`(?s)\{\{if \.HasAvailableInheritedFlags\}\}.*?\{\{end\}\}`)

func withoutGlobalFlags(template string) string {
	return globalFlags.ReplaceAllString(template, "{{if .HasAvailableInheritedFlags}}\n\nThe flags of kubectl work here, too, such as -n and --context: see kubectl options.{{end}}")
}

// reading adds the flags of commands that print objects.
func (e *environment) reading(command *cobra.Command) *cobra.Command {
	e.outputFlag(command, "json, yaml, name or wide")
	command.Flags().BoolVarP(&e.allNamespaces, "all-namespaces", "A", false, "look at all namespaces")
	return command
}

func (e *environment) outputFlag(command *cobra.Command, formats string) {
	command.Flags().StringVarP(&e.output, "output", "o", "", "output `format`: "+formats)
}

// client is one with the caller's own rights.
func (e *environment) client() (client.Client, error) {
	log.SetLogger(logr.Discard()) // or the library complains on the terminal, after half a minute
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return nil, fail(exitUnexpected, "Check your kubeconfig: kubectl config view", "read the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = -1, -1 // the API server itself says when it has enough
	return client.New(config, client.Options{Scheme: fleet.Scheme()})
}

// namespace is the one that the command is about; empty for all.
func (e *environment) namespace() (string, error) {
	if e.allNamespaces {
		return "", nil
	}
	namespace, _, err := e.flags.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// Main is the program.
func Main(ctx context.Context) int {
	if _, completing := calledAs(os.Args[0]); completing {
		if nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
			os.Stderr = nowhere // also for the libraries that complain there
		}
	}
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	return Run(ctx, os.Args[1:], Terminal{IOStreams: streams, Screen: table.ScreenOf(os.Stdout), Now: time.Now, Program: os.Args[0]})
}
