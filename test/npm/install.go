// Package npm installs pinned packages of the npm registry that tests run.
package npm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/slipway-mcp/slipway/test/cache"
)

// Install installs what package.json and package-lock.json in dir pin, into the cache
// and once for each content of the two, and returns the path of node_modules.
//
// Several packages may install the same at once: the first one does, and the others wait.
func Install(ctx context.Context, dir string) (modules string, err error) {
	contents := map[string][]byte{}
	key := sha256.New()
	for _, file := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return "", fmt.Errorf("install packages: %w", err)
		}
		key.Write(data)
		contents[file] = data
	}
	cached, err := cache.Dir()
	if err != nil {
		return "", err
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("install packages: %w", err)
	}
	target := filepath.Join(cached, filepath.Base(absolute), hex.EncodeToString(key.Sum(nil)[:8]))
	if err := installOnce(ctx, target, contents); err != nil {
		return "", fmt.Errorf("install packages: %w", err)
	}
	return filepath.Join(target, "node_modules"), nil
}

func installOnce(ctx context.Context, target string, contents map[string][]byte) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	release, err := lock(filepath.Join(target, "lock"))
	if err != nil {
		return err
	}
	defer release()
	installed := filepath.Join(target, "installed")
	if _, err := os.Stat(installed); err == nil {
		return nil
	}
	for file, data := range contents {
		if err := os.WriteFile(filepath.Join(target, file), data, 0o644); err != nil {
			return err
		}
	}
	command := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund")
	command.Dir = target
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("run npm ci: %w: %s", err, out)
	}
	return os.WriteFile(installed, nil, 0o644)
}

// lock waits until no other process has the lock of a file.
func lock(path string) (release func(), err error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}
