// Command test runs the parts of the test suite, says how long each takes, and ends with
// the commands that run just what failed.
//
//	go run ./hack/test [unit] [integration] [long] [-- FLAGS OF go test]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/hack/internal/gotest"
)

// part is one part of the suite.
type part struct {
	name     string
	title    string
	packages func(context.Context) ([]string, error)
	flags    []string
	needs    func(context.Context) (env []string, err error)
}

var parts = []part{
	{name: "unit", title: "unit tests", packages: gotest.UnitPackages, flags: gotest.ShortFlags, needs: nothing},
	{
		name: "integration", title: "integration tests, against a real API server and kube-controller-manager",
		packages: gotest.IntegrationPackages, flags: gotest.ShortFlags, needs: gotest.Kubernetes,
	},
	{name: "long", title: "long tests", packages: gotest.LongPackages, flags: gotest.LongFlags, needs: gotest.Kubernetes},
}

func nothing(context.Context) ([]string, error) { return nil, nil }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // stop has nothing left to do
	}
}

func run(ctx context.Context, args []string) error {
	names, flags := args, []string(nil)
	if i := slices.Index(args, "--"); i >= 0 {
		names, flags = args[:i], args[i+1:]
	}
	var wanted []part
	for _, name := range names {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return fmt.Errorf("there is no part %q; the parts are unit, integration and long", name)
		}
		wanted = append(wanted, parts[i])
	}
	if len(wanted) == 0 {
		return errors.New("name the parts to run: unit, integration, long")
	}
	began := time.Now()
	var total gotest.Result
	var stopped error
	for _, p := range wanted {
		result, err := p.run(ctx, flags)
		if result != nil {
			total.Passed += result.Passed
			total.Failed += result.Failed
			total.Skipped += result.Skipped
			total.Failures = append(total.Failures, result.Failures...)
		}
		if err != nil {
			stopped = fmt.Errorf("run %s: %w", p.title, err)
			break
		}
	}
	fmt.Printf("\n%d passed, %d failed, %d skipped\n", total.Passed, total.Failed, total.Skipped)
	fmt.Printf("in %.0f s\n", time.Since(began).Seconds())
	if len(total.Failures) > 0 {
		fmt.Println("\nRun just what failed:")
		for _, failure := range total.Failures {
			fmt.Println("  " + failure.Command())
		}
		stopped = errors.Join(stopped, errors.New("tests failed; their output is above"))
	}
	return stopped
}

func (p part) run(ctx context.Context, flags []string) (*gotest.Result, error) {
	packages, err := p.packages(ctx)
	if err != nil {
		return nil, err
	}
	env, err := p.needs(ctx)
	if err != nil {
		return nil, err
	}
	flags = slices.Concat(p.flags, flags)
	fmt.Printf("\n=== %s: go test %s, %d packages\n", p.title, strings.Join(flags, " "), len(packages))
	result, err := gotest.Run(ctx, gotest.Suite{Packages: packages, Flags: flags, Env: env, Progress: os.Stdout})
	if err != nil {
		return result, err
	}
	verdict := "passed"
	if result.Failed > 0 {
		verdict = "FAILED"
	}
	fmt.Printf("=== %s: %s in %.0f s\n", p.title, verdict, result.Took.Seconds())
	return result, nil
}
