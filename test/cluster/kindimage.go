package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// errNoImage says that there is no image for the nodes of a kind cluster.
var errNoImage = errors.New("no node image for kind can be had")

// otherImages are the images that the version of kind in hack/tools/go.mod has been released with, beside that of
// kind.yaml. Their versions of Kubernetes are the only ones, so they may be other patch levels than those of hack/kube.
var otherImages = []string{
	"kindest/node:v1.36.4@sha256:099e049362a1526b2db71494e1947aae99bd16290d7c895f2b7ea312e3cbfaed",
	"kindest/node:v1.35.8@sha256:07b2536e30b803ed61d1677a79df6115f798ce64c80f9e22f6ed45afd09323c0",
	"kindest/node:v1.34.11@sha256:44e222ee2132dab25ff87301682f89eb82c7880ea3a1bf543bfe9708fd08d67d",
}

// image returns an image for the nodes that the engine has: the one that kind publishes, where a registry answers, else
// one of our own.
func (k *kind) image(ctx context.Context) (string, error) {
	if named := k.options.image; named != "" {
		if k.hasOwnEngine() && !k.has(ctx, named) {
			return k.pull(ctx, named)
		}
		return named, nil // kind pulls it, and says what is wrong with it
	}
	config, err := readConfig(k.repository)
	if err != nil {
		return "", err
	}
	version, err := k.version(ctx)
	if err != nil {
		return "", err
	}
	published, unusable := k.published(ctx, append([]string{config.image()}, otherImages...), version)
	if unusable == nil {
		return published, nil
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("pull the node image of kind: %w", ctx.Err())
	}
	own, err := k.ownImage(ctx)
	if err != nil {
		return "", fmt.Errorf("%w: %w, and none can be built here (%w)", errNoImage, unusable, err)
	}
	fmt.Printf("note: %v, so the nodes have an image that was built here\n", unusable)
	return own, nil
}

// published returns the image that kind publishes for a version of Kubernetes, once the engine has it.
func (k *kind) published(ctx context.Context, images []string, version string) (string, error) {
	minor := version
	if parts := strings.SplitN(version, ".", 3); len(parts) == 3 && k.options.version != version {
		minor = parts[0] + "." + parts[1] // unless the user asks for this very patch level
	}
	i := slices.IndexFunc(images, func(image string) bool {
		_, tag, _ := strings.Cut(image, ":")
		return strings.HasPrefix(tag, minor+".") || strings.HasPrefix(tag, minor+"@")
	})
	switch {
	case i < 0:
		return "", fmt.Errorf("kind publishes no image with Kubernetes %s", version)
	case k.onCgroupV1(ctx):
		return "", errors.New("the node image that kind publishes does not start on cgroup v1")
	case k.has(ctx, images[i]):
		return images[i], nil
	}
	pulled, err := k.pull(ctx, images[i])
	if err != nil {
		return "", fmt.Errorf("%s cannot be pulled (%w)", images[i], err)
	}
	return pulled, nil
}

// onCgroupV1 reports whether the machine of the engine has version 1 of cgroups.
func (k *kind) onCgroupV1(ctx context.Context) bool {
	var version bytes.Buffer
	err := k.docker(ctx, &version, "info", "--format", "{{.CgroupVersion}}")
	return err == nil && strings.TrimSpace(version.String()) == "1"
}

// version is that of Kubernetes, by KUBE_VERSION.
func (k *kind) version(ctx context.Context) (string, error) {
	var version bytes.Buffer
	if err := k.run(ctx, k.repository, &version, filepath.Join(k.repository, "hack", "kube", "build.sh"), "--version"); err != nil {
		return "", fmt.Errorf("find out the version of Kubernetes: %w", err)
	}
	return strings.TrimSpace(version.String()), nil
}

func (k *kind) has(ctx context.Context, image string) bool {
	// Without the engine's complaint: there is another way. `docker images` does not find a name with a tag and a digest.
	return k.run(ctx, k.repository, io.Discard, "sh", "-c", `docker image inspect "$0" 2>/dev/null`, image) == nil
}

// pull has the engine pull an image, and returns its name there. Our own engine reaches no network, so the image comes
// through this program.
func (k *kind) pull(ctx context.Context, image string) (string, error) {
	if !k.hasOwnEngine() {
		return image, k.docker(ctx, os.Stdout, "pull", image)
	}
	archive := filepath.Join(k.dir, "node.tar")
	defer func() { _ = os.Remove(archive) }() // the engine has it
	loaded, err := pullArchive(ctx, image, archive)
	if err != nil {
		return "", err
	}
	return loaded, k.docker(ctx, io.Discard, "load", "--input", archive)
}

// ownImage makes the image of hack/kindnode known to the engine.
func (k *kind) ownImage(ctx context.Context) (string, error) {
	var path bytes.Buffer
	if err := k.run(ctx, k.repository, &path, filepath.Join(k.repository, "hack", "kindnode", "build.sh")); err != nil {
		return "", fmt.Errorf("run hack/kindnode/build.sh: %w", err)
	}
	archive := strings.TrimSpace(path.String())
	// The directory's name is a key of the sources.
	image := "slipway-kind-node:" + filepath.Base(filepath.Dir(archive))
	if k.has(ctx, image) {
		return image, nil
	}
	_, _ = fmt.Fprintln(os.Stdout, "progress: load the node image into the Docker engine, about 80 s left")
	base := strings.Replace(image, ":", "-files:", 1)
	if err := k.docker(ctx, io.Discard, "import", archive, base); err != nil {
		return "", err
	}
	// An import takes neither environment nor stop signal.
	dir, err := os.MkdirTemp("", "slipway-kind-node")
	if err != nil {
		return "", fmt.Errorf("make directory for Dockerfile: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	dockerfile := "FROM " + base + `
ENV container=docker
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
STOPSIGNAL SIGRTMIN+3
`
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(dockerfile), 0o600); err != nil {
		return "", fmt.Errorf("write Dockerfile: %w", err)
	}
	return image, k.docker(ctx, io.Discard, "build", "--tag", image, dir)
}
