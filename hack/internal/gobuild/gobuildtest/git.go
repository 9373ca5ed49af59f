// Package gobuildtest gives tests repositories of their own.
package gobuildtest

import (
	"os"
	"testing"

	"github.com/slipway-mcp/slipway/hack/internal/gobuild"
)

// OwnGit has git work in the directories of a test as it does everywhere else.
func OwnGit(t *testing.T) {
	t.Helper()
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_COMMITTER_DATE", "2026-01-02T03:04:05Z")
	t.Setenv("GIT_AUTHOR_DATE", "2026-01-02T03:04:05Z")
	t.Setenv("GIT_CEILING_DIRECTORIES", os.TempDir())
	// A git hook that runs the tests sets these, and the commit below would land
	// in the repository that the hook is for. Setenv first, to have them back.
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"} {
		t.Setenv(name, "")
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
}

// Commit makes a directory a repository, or what changed in it another commit.
func Commit(t *testing.T, dir string) {
	t.Helper()
	for _, args := range [][]string{
		{"init", "--quiet"}, {"add", "--all"},
		{"-c", "user.name=n", "-c", "user.email=e@example.dev", "commit", "--quiet", "--allow-empty", "--message", "first"},
	} {
		if _, err := gobuild.Git(t.Context(), dir, args...); err != nil {
			t.Fatal(err)
		}
	}
}
