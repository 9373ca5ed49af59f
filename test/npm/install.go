// Package npm installs pinned packages of the npm registry that tests run.
package npm

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Install installs what package.json and package-lock.json in the test's directory
// pin, into the cache and once for each content of the two, and returns the path of
// node_modules.
func Install(t *testing.T, name string) (modules string) {
	t.Helper()
	files := []string{"package.json", "package-lock.json"}
	contents := map[string][]byte{}
	key := sha256.New()
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("read %s: %v", file, err)
		}
		key.Write(data)
		contents[file] = data
	}
	dir := filepath.Join(cache(t), name, hex.EncodeToString(key.Sum(nil)[:8]))
	modules = filepath.Join(dir, "node_modules")
	installed := filepath.Join(dir, "installed")
	if _, err := os.Stat(installed); err == nil {
		return modules
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatalf("make %s: %v", dir, err)
	}
	for file, data := range contents {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
			t.Fatalf("copy %s: %v", file, err)
		}
	}
	command := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund")
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("run npm ci: %v: %s", err, out)
	}
	if err := os.WriteFile(installed, nil, 0o644); err != nil {
		t.Fatalf("mark %s: %v", dir, err)
	}
	return modules
}

func cache(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("SLIPWAY_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatalf("find cache: %v", err)
	}
	return filepath.Join(dir, "slipway")
}
