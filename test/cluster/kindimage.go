package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// errNoImage says that there is no image for the nodes of a kind cluster.
var errNoImage = errors.New("no node image for kind can be had")

// image returns an image for the nodes that the engine has: the one that kind publishes, where a registry answers, else
// one of our own.
func (k *kind) image(ctx context.Context) (string, error) {
	published, err := k.publishedImage(ctx)
	if err != nil {
		return "", err
	}
	if k.has(ctx, published) || k.options.image != "" {
		return published, nil // kind pulls an image that the user names, and says what is wrong with it
	}
	pulled, notPulled := k.pull(ctx, published)
	if notPulled == nil {
		return pulled, nil
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("pull %s: %w", published, ctx.Err())
	}
	fmt.Printf("note: %s cannot be pulled (%v), so the nodes get an image that is built here\n", published, notPulled)
	own, err := k.ownImage(ctx)
	if err != nil {
		return "", fmt.Errorf("%w: %s cannot be pulled (%w), nor can one be built (%w)", errNoImage, published, notPulled, err)
	}
	return own, nil
}

// publishedImage is the image of kind.yaml, or of another version of Kubernetes that the user asks for.
func (k *kind) publishedImage(ctx context.Context) (string, error) {
	if k.options.image != "" {
		return k.options.image, nil
	}
	config, err := readConfig(k.repository)
	if err != nil {
		return "", err
	}
	version, err := k.version(ctx)
	if err != nil {
		return "", err
	}
	if name, _, _ := strings.Cut(config.image(), "@"); strings.HasSuffix(name, ":"+version) {
		return config.image(), nil
	}
	repository, _, _ := strings.Cut(config.image(), ":")
	return repository + ":" + version, nil
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
	var ids bytes.Buffer
	err := k.docker(ctx, &ids, "images", "--quiet", image)
	return err == nil && strings.TrimSpace(ids.String()) != ""
}

// pull has the engine pull an image, and returns its name there. Our own engine reaches no network, so the image comes
// through this program.
func (k *kind) pull(ctx context.Context, image string) (string, error) {
	if k.engine == nil || !k.engine.Exists() {
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
	_, _ = fmt.Fprintln(os.Stdout, "progress: load the node image into the Docker engine, about 20 s left")
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
