// Package gobuild builds programs of this repository so that the same commit always gives the
// same bytes.
package gobuild

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const versionPackage = "github.com/slipway-mcp/slipway/internal/version"

// Source is what a build says about where it comes from.
type Source struct {
	Commit  string
	Created time.Time
}

// Programs are what one call of the compiler builds.
type Programs struct {
	Root      string // of the module
	Paths     []string
	Version   string // that they tell
	OS, Arch  string
	Directory string // for the programs
}

// Compile builds programs for a platform. It sets or turns off everything of this machine that
// could show in the bytes.
func Compile(ctx context.Context, programs Programs, src Source) error {
	args := []string{
		"build", "-trimpath", "-buildvcs=false",
		"-ldflags", fmt.Sprintf("-s -w -X %[1]s.version=%[2]s -X %[1]s.commit=%[3]s", versionPackage, programs.Version, src.Commit),
		"-o", programs.Directory + string(filepath.Separator),
	}
	for _, path := range programs.Paths {
		args = append(args, "./"+path)
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = programs.Root
	command.Env = append(os.Environ(),
		"CGO_ENABLED=0", "GOFIPS140=off", "GOOS="+programs.OS, "GOARCH="+programs.Arch,
		"GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("compile for %s/%s: %w\n%s", programs.OS, programs.Arch, err, output)
	}
	return nil
}

// ReadSource asks git. Without git or without a commit, the commit is unknown
// and the time the Unix epoch: a clock would make every build a new digest.
// SOURCE_DATE_EPOCH overrides the time (https://reproducible-builds.org).
func ReadSource(ctx context.Context, root string) (Source, error) {
	src := Source{Commit: "unknown", Created: time.Unix(0, 0)}
	commit, err := Git(ctx, root, "log", "-1", "--format=%H %ct")
	if hash, seconds, ok := strings.Cut(commit, " "); err == nil && ok {
		src.Commit = hash
		if src.Created, err = parseTime(seconds); err != nil {
			return Source{}, fmt.Errorf("read commit time: %w", err)
		}
		changes, err := Git(ctx, root, "status", "--porcelain")
		if err != nil {
			return Source{}, err
		}
		if changes != "" {
			// Such a build cannot be made again from the commit it names.
			src.Commit += "-dirty"
		}
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		if src.Created, err = parseTime(epoch); err != nil {
			return Source{}, fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
		}
	}
	return src, nil
}

// Git runs git in a directory and returns what it prints.
func Git(ctx context.Context, dir string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = dir
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("run git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(output)), nil
}

func parseTime(seconds string) (time.Time, error) {
	value, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || value < 0 {
		return time.Time{}, fmt.Errorf("%q is not a number of seconds since 1970", seconds)
	}
	return time.Unix(value, 0), nil
}
