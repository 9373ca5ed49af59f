package main

import (
	"context"
	"path"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-mcp/slipway/hack/internal/gobuild"
	"github.com/slipway-mcp/slipway/internal/imagebuild"
)

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

func (d definition) spec(opts options, src gobuild.Source, platform v1.Platform, binaries string) imagebuild.Spec {
	spec := imagebuild.Spec{
		Platform:   platform,
		Entrypoint: []string{d.path(0)},
		// A number, because without /etc/passwd there are no names, and because
		// runAsNonRoot can be checked against nothing else.
		User:       "65532:65532",
		WorkingDir: "/",
		Created:    src.Created,
		Labels: map[string]string{
			"org.opencontainers.image.title":       "slipway-" + d.name,
			"org.opencontainers.image.description": d.description,
			"org.opencontainers.image.version":     opts.version,
			"org.opencontainers.image.revision":    src.Commit,
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

// compile builds all programs for a platform.
func compile(ctx context.Context, opts options, src gobuild.Source, platform v1.Platform, binaries string) error {
	programs := gobuild.Programs{
		Root: opts.root, Version: opts.version, OS: platform.OS, Arch: platform.Architecture,
		Directory: binaryDir(binaries, platform),
	}
	for _, definition := range opts.definitions {
		programs.Paths = append(programs.Paths, definition.programs...)
	}
	return gobuild.Compile(ctx, programs, src)
}

func binaryDir(binaries string, platform v1.Platform) string {
	return filepath.Join(binaries, platform.OS+"_"+platform.Architecture)
}
