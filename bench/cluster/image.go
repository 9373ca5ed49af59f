package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
)

// program is the server that is run: one that costs next to nothing itself.
const program = "echo"

// loadServer builds the server's image, loads it onto the cluster's nodes and returns its
// name. The name depends on the content, so no pod runs an image that an earlier run left there.
func loadServer(ctx context.Context) (ref string, err error) {
	dir, err := os.MkdirTemp("", "slipway-bench-cluster-")
	if err != nil {
		return "", fmt.Errorf("make directory for the server: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary, archive := filepath.Join(dir, program), filepath.Join(dir, program+".tar")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./test/servers/"+program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", program, err, output)
	}
	image, err := imagebuild.Image(imagebuild.Spec{
		Platform:   v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Files:      []imagebuild.File{{Path: "/" + program, Source: binary, Mode: 0o755}},
		Entrypoint: []string{"/" + program},
		User:       "65532:65532",
	})
	if err != nil {
		return "", fmt.Errorf("build image of %s: %w", program, err)
	}
	digest, err := image.Digest()
	if err != nil {
		return "", fmt.Errorf("compute digest of image of %s: %w", program, err)
	}
	ref = "localhost/slipway-bench/" + program + ":" + digest.Hex[:16]
	if err := imagebuild.WriteTar(archive, ref, image); err != nil {
		return "", err
	}
	if output, err := exec.CommandContext(ctx, "go", "run", "./test/cluster", "load", archive).CombinedOutput(); err != nil {
		return "", fmt.Errorf("load image of %s: %w: %s", program, err, output)
	}
	return ref, nil
}
