package dex

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/slipway-mcp/slipway/test/cache"
)

// Build builds the program of test/idp into the cache, once for each content of its module, and returns its
// path. It is a static binary for Linux containers, too.
func Build(ctx context.Context) (program string, err error) {
	module, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find module: %w", err)
	}
	source := filepath.Join(filepath.Dir(string(bytes.TrimSpace(module))), "test", "idp")
	key, err := sourceKey(source)
	if err != nil {
		return "", err
	}
	cached, err := cache.Dir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cached, "idp", key)
	program = filepath.Join(dir, "idp")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make directory for dex: %w", err)
	}
	// Several packages may build at once: each its own, and the last one stays.
	work, err := os.MkdirTemp(dir, "build")
	if err != nil {
		return "", fmt.Errorf("make directory for dex: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	built := filepath.Join(work, "idp")
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", built, ".")
	command.Dir = source
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build dex: %w: %s", err, out)
	}
	if err := os.Rename(built, program); err != nil {
		return "", fmt.Errorf("keep dex: %w", err)
	}
	return program, nil
}

// sourceKey is a digest of the module and the compiler.
func sourceKey(source string) (string, error) {
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		return "", fmt.Errorf("find source of dex: %w", err)
	}
	key := sha256.New()
	_, _ = fmt.Fprintln(key, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, file := range slices.Concat([]string{filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum")}, files) {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read source of dex: %w", err)
		}
		_, _ = fmt.Fprintln(key, filepath.Base(file), len(content))
		key.Write(content)
	}
	return hex.EncodeToString(key.Sum(nil)[:8]), nil
}
