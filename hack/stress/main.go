// Command stress runs the tests many times, quietly and beside busy loops, to find those
// that fail now and then.
//
//	go run ./hack/stress [-out FILE] [-only STAGE,…]
//
// Each package that ends adds a line to the file. A run that was cut off goes on where it
// stopped: it leaves out what the file has for the same source and stage. Exit code 1
// means that a test failed, now or in what the file has.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/hack/internal/gotest"
)

// stage is one way to run tests.
type stage struct {
	name        string
	packages    func(context.Context) ([]string, error)
	long        bool // the long tests, and no others
	times       int
	maxProcs    int // of everything that the tests run; 0 means as many as there are cores
	loopsPerCPU int // busy loops beside the tests
}

var stages = []stage{
	{name: "unit", packages: gotest.UnitPackages, times: 20},
	{name: "integration", packages: gotest.IntegrationPackages, times: 5},
	{name: "long", packages: gotest.LongPackages, long: true, times: 3},
	{name: "loaded-2", packages: gotest.AllPackages, times: 3, maxProcs: 2, loopsPerCPU: 2},
	{name: "loaded-1", packages: gotest.AllPackages, times: 3, maxProcs: 1, loopsPerCPU: 2},
}

// packagesAtATime is more than there are cores: most tests wait most of the time, and tests
// that need a core must pass next to others, too.
const packagesAtATime = 4

func main() {
	out := flag.String("out", filepath.Join(cache(), "stress.tsv"), "`file` that results are added to")
	only := flag.String("only", "", "`stages` to run, with commas: unit, integration, long, loaded-2, loaded-1; all when empty")
	race := flag.Bool("race", true, "run with the race detector")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *out, *only, *race); err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing left to do
	}
}

// cache is where everything is that a fresh clone must not make again.
func cache() string {
	if dir := os.Getenv("SLIPWAY_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "."
	}
	return filepath.Join(dir, "slipway")
}

func run(ctx context.Context, out, only string, race bool) error {
	source, err := sourceID(ctx)
	if err != nil {
		return err
	}
	book, err := openBook(out, source)
	if err != nil {
		return err
	}
	defer func() { _ = book.close() }()
	env, err := gotest.Kubernetes(ctx)
	if err != nil {
		return err
	}
	wanted, err := choose(only)
	if err != nil {
		return err
	}
	for _, s := range wanted {
		if err := s.run(ctx, book, env, race); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return book.verdict(os.Stdout)
}

// choose finds stages by their names.
func choose(names string) ([]stage, error) {
	if names == "" {
		return stages, nil
	}
	var chosen []stage
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(stages, func(s stage) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no stage %q", name)
		}
		chosen = append(chosen, stages[i])
	}
	return chosen, nil
}

func (s stage) run(ctx context.Context, book *book, env []string, race bool) error {
	all, err := s.packages(ctx)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(all, func(path string) bool { return book.has(s.name, path) })
	fmt.Printf("=== %s: each test %d times, %d packages left\n", s.name, s.times, len(left))
	if len(left) == 0 {
		return nil
	}
	tests := gotest.ShortFlags
	if s.long {
		tests = gotest.LongFlags
	}
	flags := slices.Concat(tests, []string{fmt.Sprintf("-count=%d", s.times), "-timeout=3h", "-vet=off", fmt.Sprintf("-p=%d", packagesAtATime)})
	if race {
		flags = append(flags, "-race")
	}
	if s.maxProcs > 0 {
		env = append(slices.Clone(env), fmt.Sprintf("GOMAXPROCS=%d", s.maxProcs))
	}
	defer startLoops(s.loopsPerCPU)()
	var recordErr error
	var failed []gotest.Package
	_, err = gotest.Run(ctx, gotest.Suite{
		Packages: left, Flags: flags, Env: env, Progress: os.Stdout,
		Ended: func(ended gotest.Package) {
			if len(ended.Failures) > 0 {
				failed = append(failed, ended) // it may be that the run is being cut off
				return
			}
			recordErr = errors.Join(recordErr, book.add(s, ended))
		},
	})
	if ctx.Err() == nil {
		for _, ended := range failed {
			recordErr = errors.Join(recordErr, book.add(s, ended))
		}
	}
	return errors.Join(err, recordErr)
}

// sourceID names the source that is tested: its commit, and a digest of what has changed
// since.
func sourceID(ctx context.Context) (string, error) {
	script := `git rev-parse --short=12 HEAD; git status --porcelain | grep -q . && { git diff HEAD; git ls-files --others --exclude-standard -z | xargs -0r cat; } | sha256sum | cut -c1-8 || true`
	output, err := exec.CommandContext(ctx, "bash", "-c", script).Output()
	if err != nil {
		return "", fmt.Errorf("name the source: %w", err)
	}
	source := strings.Join(strings.Fields(string(output)), "-dirty-")
	if source == "" {
		return "", errors.New("name the source: this is no git checkout")
	}
	return source, nil
}

// now is when something was recorded.
func now() string { return time.Now().UTC().Format(time.RFC3339) }
