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
	"testing"
)

// Run builds the server with the name, says where it is, runs a package's tests and
// removes it again. It is for TestMain, and returns the exit code.
func Run(m *testing.M, name string, path *string) (code int) {
	code, err := run(m, name, path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(m *testing.M, name string, path *string) (code int, err error) {
	dir, err := os.MkdirTemp("", "slipway-test-servers")
	if err != nil {
		return 1, fmt.Errorf("make directory for server %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	*path = filepath.Join(dir, name)
	build := exec.CommandContext(context.Background(), "go", "build", "-o", *path, "github.com/slipway-mcp/slipway/test/servers/"+name)
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build server %s: %w: %s", name, err, out)
	}
	return m.Run(), nil
}
