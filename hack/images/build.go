package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
)

const versionPackage = "github.com/slipway-mcp/slipway/internal/version"

// definition is an image: which programs it holds, by their directories, the first
// being what it runs.
type definition struct {
	name        string
	description string
	programs    []string
	// entrypoint is what the first program is called in the image, if that is not the name of
	// its directory.
	entrypoint string
}

// demo is the image of `make demo`: an MCP server, and a client to call it with.
var demo = definition{
	name:        "demo",
	description: "A small MCP server, and a client.",
	programs:    []string{"test/servers/greeter", "test/client"},
}

var definitions = []definition{
	{
		name:        "manager",
		description: "The operator that runs MCP servers as Kubernetes workloads.",
		programs:    []string{"cmd/manager"},
	},
	{
		// The launcher travels with the adapter, which puts it into the pod.
		name:        "adapter",
		description: "The adapter that MCP clients talk to, and the launcher of the servers behind it.",
		programs:    []string{"cmd/sidecar", "cmd/launcher"},
		entrypoint:  "adapter",
	},
}

func (d definition) spec(opts options, src source, platform v1.Platform, binaries string) imagebuild.Spec {
	spec := imagebuild.Spec{
		Platform:   platform,
		Entrypoint: []string{d.path(0)},
		// A number, because without /etc/passwd there are no names, and because
		// runAsNonRoot can be checked against nothing else.
		User:       "65532:65532",
		WorkingDir: "/",
		Created:    src.created,
		Labels: map[string]string{
			"org.opencontainers.image.title":       "slipway-" + d.name,
			"org.opencontainers.image.description": d.description,
			"org.opencontainers.image.version":     opts.version,
			"org.opencontainers.image.revision":    src.commit,
		},
	}
	for i, program := range d.programs {
		spec.Files = append(spec.Files, imagebuild.File{
			Path:   d.path(i),
			Source: filepath.Join(binaryDir(binaries, platform), path.Base(program)),
			Mode:   0o755,
		})
	}
	return spec
}

// path is where a program is in the image.
func (d definition) path(program int) string {
	if program == 0 && d.entrypoint != "" {
		return "/" + d.entrypoint
	}
	return "/" + path.Base(d.programs[program])
}

// compile builds all programs for a platform. Everything of this machine that
// could show in the bytes is set or turned off.
func compile(ctx context.Context, opts options, src source, platform v1.Platform, binaries string) error {
	dir := binaryDir(binaries, platform)
	args := []string{
		"build", "-trimpath", "-buildvcs=false",
		"-ldflags", fmt.Sprintf("-s -w -X %[1]s.version=%[2]s -X %[1]s.commit=%[3]s", versionPackage, opts.version, src.commit),
		"-o", dir + string(filepath.Separator),
	}
	for _, definition := range opts.definitions {
		for _, program := range definition.programs {
			args = append(args, "./"+program)
		}
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = opts.root
	command.Env = append(os.Environ(),
		"CGO_ENABLED=0", "GOFIPS140=off", "GOOS="+platform.OS, "GOARCH="+platform.Architecture,
		"GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("compile for %s: %w\n%s", platform, err, output)
	}
	return nil
}

func binaryDir(binaries string, platform v1.Platform) string {
	return filepath.Join(binaries, platform.OS+"_"+platform.Architecture)
}

// source is what the images say about where they come from.
type source struct {
	commit  string
	created time.Time
}

// readSource asks git. Without git or without a commit, the commit is unknown
// and the time the Unix epoch: a clock would make every build a new digest.
// SOURCE_DATE_EPOCH overrides the time (https://reproducible-builds.org).
func readSource(ctx context.Context, root string) (source, error) {
	src := source{commit: "unknown", created: time.Unix(0, 0)}
	commit, err := git(ctx, root, "log", "-1", "--format=%H %ct")
	if hash, seconds, ok := strings.Cut(commit, " "); err == nil && ok {
		src.commit = hash
		if src.created, err = parseTime(seconds); err != nil {
			return source{}, fmt.Errorf("read commit time: %w", err)
		}
		changes, err := git(ctx, root, "status", "--porcelain")
		if err != nil {
			return source{}, err
		}
		if changes != "" {
			// Such an image cannot be made again from the commit it names.
			src.commit += "-dirty"
		}
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		if src.created, err = parseTime(epoch); err != nil {
			return source{}, fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
		}
	}
	return src, nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
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
