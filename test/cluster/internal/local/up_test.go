package local

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
)

func TestCancelledBuildMayCleanUp(t *testing.T) {
	c := newCluster(t)
	c.Repository = t.TempDir()
	dir := filepath.Join(c.Repository, "hack", "kube")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	script := `#!/bin/sh
cd "$(dirname "$0")"
trap 'touch cleaned; exit 143' TERM
touch started
while :; do sleep 0.05; done
`
	if err := os.WriteFile(filepath.Join(dir, "build.sh"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- c.findBinaries(ctx) }()
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	for deadline := time.Now().Add(hang.Guard); !exists("started"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("build.sh has not been started")
		}
	}
	cancel()
	if err := <-result; err == nil {
		t.Error("no error")
	}
	if !exists("cleaned") {
		t.Error("build.sh was killed before it could clean up")
	}
}
