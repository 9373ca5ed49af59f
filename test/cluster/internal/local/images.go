package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
	"github.com/slipway-mcp/slipway/test/cluster/internal/containerd"
	"github.com/slipway-mcp/slipway/test/cluster/internal/machine"
)

// The cluster's own images. With the name localhost, the runtime pulls them from no registry.
const (
	pauseImage   = "localhost/slipway-cluster/pause:1"
	coreDNSImage = "localhost/slipway-cluster/coredns:1"
)

// loadOwnImages builds and imports the cluster's own images unless they are there.
func (c *Cluster) loadOwnImages(ctx context.Context) error {
	key, err := c.imagesKey()
	if err != nil {
		return err
	}
	keyPath := c.path("images", "key")
	loaded, err := os.ReadFile(keyPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read key of images: %w", err)
	}
	list, err := c.ctr(ctx, "images", "list", "--quiet")
	if err != nil {
		return err
	}
	names := strings.Fields(list)
	if string(loaded) == key && slices.Contains(names, pauseImage) && slices.Contains(names, coreDNSImage) {
		return nil
	}

	pause := c.path("images", "pause")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", pause, "./test/cluster/pause")
	build.Dir = c.Repository
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build pause: %w: %s", err, bytes.TrimSpace(output))
	}
	for ref, binary := range map[string]string{pauseImage: pause, coreDNSImage: filepath.Join(c.bin, "coredns")} {
		if err := c.loadProgram(ctx, ref, binary); err != nil {
			return err
		}
	}
	return writeFile(keyPath, []byte(key))
}

// loadProgram makes an image of one static program and imports it.
func (c *Cluster) loadProgram(ctx context.Context, ref, binary string) error {
	name := strings.TrimSuffix(filepath.Base(ref), ":1")
	image, err := imagebuild.Image(imagebuild.Spec{
		Platform:   v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Files:      []imagebuild.File{{Path: "/" + name, Source: binary, Mode: 0o755}},
		Entrypoint: []string{"/" + name},
		User:       "65532:65532",
	})
	if err != nil {
		return err
	}
	archive := c.path("images", name+".tar")
	if err := imagebuild.WriteTar(archive, ref, image); err != nil {
		return err
	}
	defer func() { _ = os.Remove(archive) }() // It is in containerd now.
	_, err = c.ctr(ctx, "images", "import", archive)
	return err
}

// imagesKey changes when an image would.
func (c *Cluster) imagesKey() (string, error) {
	source, err := os.ReadFile(filepath.Join(c.Repository, "test", "cluster", "pause", "main.go"))
	if err != nil {
		return "", fmt.Errorf("read source of pause: %w", err)
	}
	// The name of the binaries' directory is a key of theirs.
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%q", filepath.Base(c.bin), source))
	return hex.EncodeToString(sum[:]), nil
}

// ctr runs containerd's client in the namespace that the kubelet uses.
func (c *Cluster) ctr(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, "ctr", append([]string{"--address", c.socket(), "--namespace", containerd.Namespace}, args...)...)
	command.Env = []string{"PATH=" + machine.Path}
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// Load imports image archives.
func (c *Cluster) Load(ctx context.Context, archives ...string) error {
	if err := c.needRuntime(); err != nil {
		return err
	}
	for _, archive := range archives {
		if err := c.progress.step("load "+filepath.Base(archive), func() error {
			path, err := filepath.Abs(archive)
			if err != nil {
				return err
			}
			_, err = c.ctr(ctx, "images", "import", path)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
