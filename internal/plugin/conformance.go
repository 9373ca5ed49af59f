package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/node"
	"github.com/slipway-mcp/slipway/internal/plugin/suite"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

// conformanceOptions are what the user wants to test.
type conformanceOptions struct {
	revision  string
	scenarios []string
	all       bool
	log       string
	verbose   bool
}

func (e *environment) conformance() *cobra.Command {
	var options conformanceOptions
	command := &cobra.Command{
		Use:   "conformance NAME",
		Short: "Run the official conformance suite against a server",
		Long: "Run the official conformance suite against a server of the cluster, through the port\n" +
			"that its clients use. Most scenarios need tools that only a server made for the suite has. Without\n" +
			"--all or --scenario, the command runs those that any server can pass. npx downloads the suite, which needs Node.js " + suite.Package.Node.String() + ".\n" +
			"The exit code is 5 if a scenario fails.",
		Example: "  kubectl mcp conformance tickets\n  kubectl mcp conformance tickets --requirements 2025-11-25 --scenario tools-list --scenario ping",
		Args:    exactlyOne("name a server, as in kubectl mcp conformance tickets"),
		RunE: func(command *cobra.Command, args []string) error {
			if err := e.checkConformance(command.Context(), options); err != nil {
				return err
			}
			return e.testConformance(command.Context(), args[0], options)
		},
	}
	command.Flags().StringVar(&options.revision, "requirements", "",
		"protocol `revision`: "+strings.Join(suite.Revisions, " or ")+"; without it, the newest of them that the server serves")
	command.Flags().StringArrayVar(&options.scenarios, "scenario", nil, "`name` of a scenario to run; may be repeated")
	command.Flags().BoolVar(&options.all, "all", false, "run every scenario that the revision requires")
	command.Flags().StringVar(&options.log, "log", "", "`file` to write the whole output of the suite to, which must not exist")
	command.Flags().BoolVarP(&options.verbose, "verbose", "v", false, "show the whole output of the suite, on standard error")
	e.outputFlag(command, "json or yaml")
	return e.calling(command)
}

// checkConformance refuses what cannot run, before anything does.
func (e *environment) checkConformance(ctx context.Context, options conformanceOptions) error {
	if err := e.checkOutput(outputJSON, outputYAML); err != nil {
		return err
	}
	if options.revision != "" && !slices.Contains(suite.Revisions, options.revision) {
		return fail(exitUnexpected, "Use one of: "+strings.Join(suite.Revisions, ", "), "the suite has no requirements of revision %q", options.revision)
	}
	if options.all && len(options.scenarios) > 0 {
		return fail(exitUnexpected, "Leave out one of them.", "--all runs every scenario, and --scenario only some")
	}
	return needNode(ctx, suite.Package)
}

func (e *environment) testConformance(ctx context.Context, name string, options conformanceOptions) (err error) {
	line, err := e.lifeline(ctx, name)
	if err != nil {
		return err
	}
	defer line.close()
	if err := needToken(line.server, line.tokens); err != nil {
		return err
	}
	if serves := line.server.Status.ProtocolVersions; options.revision != "" && len(serves) > 0 && !slices.Contains(serves, options.revision) {
		return fail(exitUnexpected, "Leave out --requirements, or name one that it serves.", "MCPServer %s serves %s, and not %s", name, strings.Join(serves, ", "), options.revision)
	}
	sessions := &openSessions{RoundTripper: line.transport()}
	local, err := listen(ctx, sessions, 0, line.tokens != nil)
	if err != nil {
		return err
	}
	defer local.close()
	log, done, err := e.suiteLog(options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	tested := suite.Suite{Endpoint: local.url, Revision: options.revision, Log: log}
	if tested.Revision == "" && len(options.scenarios) == 0 {
		tested.Revision = newestRevision(line.server)
	}
	_, _ = fmt.Fprintf(e.ErrOut, "Running %s. The first time, npx downloads it.\n", suite.Package)
	names, err := scenariosOf(ctx, tested, line.server, options)
	if err != nil {
		return err
	}
	return e.runScenarios(ctx, tested, names, sessions.end)
}

// runScenarios runs scenarios and prints their results, even if one of them cannot run.
func (e *environment) runScenarios(ctx context.Context, tested suite.Suite, names []string, afterEach func(context.Context)) error {
	var results []suite.Result
	for i, scenario := range names {
		result, err := tested.Run(ctx, scenario)
		afterEach(ctx)
		if err != nil {
			return e.printUnfinished(ctx, tested.Revision, results, len(names), err)
		}
		_, _ = fmt.Fprintf(e.ErrOut, "%d/%d %s %s\n", i+1, len(names), scenario, result.Result)
		results = append(results, result)
	}
	if err := e.printResults(tested.Revision, results); err != nil {
		return err
	}
	return conclude(tested.Revision, results)
}

// printUnfinished prints the results so far, if there are any, and fails for what ended the run.
func (e *environment) printUnfinished(ctx context.Context, revision string, results []suite.Result, of int, cause error) error {
	if len(results) > 0 {
		if err := e.printResults(revision, results); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return fail(exitUnexpected, "Run the command again.", "the suite was interrupted after %d of %d scenarios", len(results), of)
	}
	return fail(exitUnexpected, wholeOutput, "%w", cause)
}

// wholeOutput is what to do if a result does not say enough.
const wholeOutput = "See the whole output of the suite: --log FILE"

// suiteLog is where the suite's own words go.
func (e *environment) suiteLog(options conformanceOptions) (log io.Writer, done func() error, err error) {
	writers, ends := []io.Writer{}, []func() error{}
	if options.verbose {
		shown := node.Harmless(e.ErrOut)
		writers, ends = append(writers, shown), append(ends, shown.Flush)
	}
	if options.log != "" {
		file, finish, err := createFile(options.log, "--log")
		if err != nil {
			return nil, nil, err
		}
		// A log is kept whatever happens.
		writers, ends = append(writers, file), append(ends, func() error { return finish(nil) })
	}
	return io.MultiWriter(writers...), func() error {
		var problems []error
		for _, end := range ends {
			problems = append(problems, end())
		}
		return errors.Join(problems...)
	}, nil
}

// newestRevision is the newest that the suite has requirements for and the server serves.
func newestRevision(server *mcpv1alpha1.MCPServer) string {
	for _, revision := range slices.Backward(suite.Revisions) {
		if slices.Contains(server.Status.ProtocolVersions, revision) {
			return revision
		}
	}
	return suite.Revisions[0]
}

// scenariosOf are the names of the scenarios to run.
func scenariosOf(ctx context.Context, tested suite.Suite, server *mcpv1alpha1.MCPServer, options conformanceOptions) ([]string, error) {
	if options.all {
		return tested.Scenarios(ctx, tested.Revision)
	}
	if len(options.scenarios) == 0 {
		return suite.ForAll(tested.Revision, offersOf(server)), nil
	}
	known, err := tested.Scenarios(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, name := range options.scenarios {
		if !slices.Contains(known, name) {
			return nil, fail(exitUnexpected, "See all: "+suite.Package.CommandLine("list", "--server"), "the suite has no scenario %q for servers", name)
		}
	}
	return options.scenarios, nil
}

// offersOf is what the catalog says that a server offers.
func offersOf(server *mcpv1alpha1.MCPServer) suite.Offers {
	if server.Status.Catalog == nil {
		return suite.Offers{}
	}
	counts := server.Status.Catalog.Counts
	return suite.Offers{Tools: counts.Tools > 0, Resources: counts.Resources > 0, Prompts: counts.Prompts > 0}
}

// printResults prints the results of scenarios.
func (e *environment) printResults(revision string, results []suite.Result) error {
	value := struct {
		Suite    string         `json:"suite"`
		Revision string         `json:"revision,omitempty"`
		Items    []suite.Result `json:"items"`
	}{suite.Package.String(), revision, results}
	if printed, err := e.printValue(value, nil); err != nil || printed {
		return err
	}
	var rows []table.Row
	for _, result := range results {
		rows = append(rows, table.Row{Cells: []string{result.Scenario, result.Result, result.FailedCheck}, Bad: result.Result == suite.Failed})
		if result.Message != "" {
			rows = append(rows, table.Row{Note: result.Message, Bad: true})
		}
	}
	return table.Print(e.Out, e.Screen, []string{"SCENARIO", "RESULT", "FIRST FAILED CHECK"}, rows)
}

// conclude fails if a scenario failed, or if none ran.
func conclude(revision string, results []suite.Result) error {
	counts := map[string]int{}
	for _, result := range results {
		counts[result.Result]++
	}
	revisions := "--requirements " + strings.Join(suite.Revisions, " or ")
	switch run := counts[suite.Passed] + counts[suite.Failed]; {
	case counts[suite.Failed] > 0:
		return fail(exitTool, wholeOutput, "%d of %d scenarios failed", counts[suite.Failed], run)
	case run == 0 && revision == "":
		return fail(exitUnexpected, "Choose a revision: "+revisions, "the suite skipped all of these scenarios")
	case run == 0:
		return fail(exitUnexpected, "Choose another revision: "+revisions, "revision %s has none of these scenarios", revision)
	}
	return nil
}

// openSessions notes the sessions that clients open, and ends those that they leave behind: each would
// keep its place until it has been idle for long.
type openSessions struct {
	http.RoundTripper
	mu  sync.Mutex
	ids map[string]struct{}
}

const sessionHeader = "Mcp-Session-Id"

// RoundTrip implements http.RoundTripper.
func (s *openSessions) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := s.RoundTripper.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := response.Header.Get(sessionHeader); id != "" && response.StatusCode == http.StatusOK {
		if s.ids == nil {
			s.ids = map[string]struct{}{}
		}
		s.ids[id] = struct{}{}
	}
	return response, nil
}

// takesToEnd is how long all sessions have to end.
const takesToEnd = 10 * time.Second

// end ends all sessions, as well as it can. A session that a client has ended is unknown to the server.
func (s *openSessions) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takesToEnd)
	defer cancel()
	s.mu.Lock()
	ids := s.ids
	s.ids = nil
	s.mu.Unlock()
	for id := range ids {
		request, err := http.NewRequestWithContext(ctx, http.MethodDelete, endpoint, nil)
		if err != nil {
			return
		}
		request.Header.Set(sessionHeader, id)
		if response, err := s.RoundTripper.RoundTrip(request); err == nil {
			_ = response.Body.Close()
		}
	}
}
