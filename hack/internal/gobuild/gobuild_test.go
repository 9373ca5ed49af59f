package gobuild_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/hack/internal/gobuild"
	"github.com/slipway-mcp/slipway/hack/internal/gobuild/gobuildtest"
)

func TestReadSource(t *testing.T) {
	gobuildtest.OwnGit(t)
	t.Setenv("SOURCE_DATE_EPOCH", "")
	dir := t.TempDir()
	check := func(when, commit, created string) {
		t.Helper()
		src, err := gobuild.ReadSource(t.Context(), dir)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if got := src.Created.UTC().Format(time.RFC3339); src.Commit != commit || got != created {
			t.Errorf("%s: %s at %s, want %s at %s", when, src.Commit, got, commit, created)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		output, err := gobuild.Git(t.Context(), dir, args...)
		if err != nil {
			t.Fatal(err)
		}
		return output
	}

	check("outside of git", "unknown", "1970-01-01T00:00:00Z")
	run("init", "--quiet")
	check("before the first commit", "unknown", "1970-01-01T00:00:00Z")
	gobuildtest.Commit(t, dir)
	head := run("rev-parse", "HEAD")
	check("at a commit", head, "2026-01-02T03:04:05Z")
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check("with a change", head+"-dirty", "2026-01-02T03:04:05Z")
	t.Setenv("SOURCE_DATE_EPOCH", "42")
	check("with SOURCE_DATE_EPOCH", head+"-dirty", "1970-01-01T00:00:42Z")
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, err := gobuild.ReadSource(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("with a wrong SOURCE_DATE_EPOCH: %v", err)
	}
}
