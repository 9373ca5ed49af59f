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
)

// Install installs what package.json and package-lock.json in dir pin, into the cache
// and once for each content of the two, and returns the path of node_modules.
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
	cached, err := cache()
	if err != nil {
		return "", err
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("install packages: %w", err)
	}
	target := filepath.Join(cached, filepath.Base(absolute), hex.EncodeToString(key.Sum(nil)[:8]))
	modules = filepath.Join(target, "node_modules")
	installed := filepath.Join(target, "installed")
	if _, err := os.Stat(installed); err == nil {
		return modules, nil
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return "", fmt.Errorf("install packages: %w", err)
	}
	for file, data := range contents {
		if err := os.WriteFile(filepath.Join(target, file), data, 0o644); err != nil {
			return "", fmt.Errorf("install packages: %w", err)
		}
	}
	command := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund")
	command.Dir = target
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("run npm ci: %w: %s", err, out)
	}
	if err := os.WriteFile(installed, nil, 0o644); err != nil {
		return "", fmt.Errorf("install packages: %w", err)
	}
	return modules, nil
}

func cache() (string, error) {
	if dir := os.Getenv("SLIPWAY_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache: %w", err)
	}
	return filepath.Join(dir, "slipway"), nil
}
