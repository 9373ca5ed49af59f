// Package servers builds the MCP servers that were made for tests, which stand in the
// directories below.
package servers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Run builds programs of this module, given by their directory, says where they are,
// runs a package's tests and removes the programs again. It is for TestMain, and
// returns the exit code.
func Run(m interface{ Run() int }, programs map[string]*string) (code int) {
	code, err := run(m, programs)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(m interface{ Run() int }, programs map[string]*string) (code int, err error) {
	dir, err := os.MkdirTemp("", "slipway-test-servers")
	if err != nil {
		return 1, fmt.Errorf("make directory for programs: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Tests run the programs as other users, too.
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, fmt.Errorf("open directory for programs: %w", err)
	}
	for program, path := range programs {
		*path = filepath.Join(dir, filepath.Base(program))
	}
	if err := BuildAll(context.Background(), dir, slices.Collect(maps.Keys(programs))...); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// BuildAll builds programs of this module, given by their directories, into a directory
// that is there, each under the last part of its own directory's name. All at once is
// quicker than one after the other.
func BuildAll(ctx context.Context, dir string, programs ...string) error {
	return build(ctx, dir+string(filepath.Separator), programs)
}

// Build builds one program of this module, given by its directory.
func Build(ctx context.Context, path, program string) error {
	return build(ctx, path, []string{program})
}

func build(ctx context.Context, output string, programs []string) error {
	args := []string{"build", "-ldflags=-w", "-o", output} // a third of the linker's work is for debuggers
	for _, program := range programs {
		args = append(args, "github.com/slipway-mcp/slipway/"+program)
	}
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", strings.Join(programs, ", "), err, out)
	}
	return nil
}
