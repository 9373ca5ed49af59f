// Package servers builds the MCP servers that were made for tests, which stand in the
// directories below.
package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
		if err := Build(context.Background(), *path, program); err != nil {
			return 1, err
		}
	}
	return m.Run(), nil
}

// Build builds one program of this module, given by its directory.
func Build(ctx context.Context, path, program string) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/slipway-mcp/slipway/"+program)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", program, err, out)
	}
	return nil
}
