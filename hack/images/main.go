// Command images builds Slipway's container images without a container engine:
// static binaries on an empty base. The same commit always gives the same digest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-mcp/slipway/hack/internal/gobuild"
	"github.com/slipway-mcp/slipway/internal/imagebuild"
)

// options are what the command line says.
type options struct {
	root        string // Of the module.
	definitions []definition
	out         string
	prefix      string
	version     string
	platforms   []v1.Platform
	push        bool
}

func main() {
	opts := options{root: ".", definitions: definitions}
	flag.StringVar(&opts.prefix, "prefix", "localhost/slipway", "the registry and `path` that the images' names begin with")
	flag.StringVar(&opts.version, "version", "dev", "the `version` that the binaries tell, and the images' tag")
	flag.StringVar(&opts.out, "out", "dist/images", "the `directory` that the archives are written to")
	flag.BoolVar(&opts.push, "push", false, "also push the images to their registry")
	withDemo := flag.Bool("demo", false, "build the image of the demo instead")
	platforms := flag.String("platforms", "linux/"+runtime.GOARCH, "comma-separated `list` of linux/amd64 and linux/arm64")
	flag.Parse()
	if *withDemo {
		opts.definitions = []definition{demo}
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := parsePlatforms(*platforms, &opts)
	if err == nil {
		err = run(ctx, opts, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// parsePlatforms takes only what the binaries are built and tested for.
func parsePlatforms(list string, opts *options) error {
	for name := range strings.SplitSeq(list, ",") {
		switch name {
		case "linux/amd64", "linux/arm64":
			_, architecture, _ := strings.Cut(name, "/")
			opts.platforms = append(opts.platforms, v1.Platform{OS: "linux", Architecture: architecture})
		default:
			return fmt.Errorf("read platforms: %q is neither linux/amd64 nor linux/arm64", name)
		}
	}
	return nil
}

// run builds every image, writes it as an archive, pushes it if asked to, and
// prints a line for each.
func run(ctx context.Context, opts options, stdout io.Writer) (err error) {
	src, err := gobuild.ReadSource(ctx, opts.root)
	if err != nil {
		return err
	}
	binaries, err := os.MkdirTemp("", "slipway-images-")
	if err != nil {
		return fmt.Errorf("make directory for binaries: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(binaries)) }()
	if err := os.MkdirAll(opts.out, 0o755); err != nil { //nolint:gosec // Build output is for everybody to read.
		return fmt.Errorf("make directory for images: %w", err)
	}
	for _, platform := range opts.platforms {
		if err := compile(ctx, opts, src, platform, binaries); err != nil {
			return err
		}
	}
	for _, definition := range opts.definitions {
		if err := build(ctx, opts, src, definition, binaries, stdout); err != nil {
			return err
		}
	}
	return nil
}

func build(ctx context.Context, opts options, src gobuild.Source, definition definition, binaries string, stdout io.Writer) error {
	images := make([]v1.Image, 0, len(opts.platforms))
	for _, platform := range opts.platforms {
		image, err := imagebuild.Image(definition.spec(opts, src, platform, binaries))
		if err != nil {
			return err
		}
		images = append(images, image)
	}
	root, err := imagebuild.Root(images...)
	if err != nil {
		return fmt.Errorf("build image %s: %w", definition.name, err)
	}
	digest, err := root.Digest()
	if err != nil {
		return fmt.Errorf("compute digest of image %s: %w", definition.name, err)
	}
	ref := opts.prefix + "/" + definition.name + ":" + opts.version
	archive := filepath.Join(opts.out, definition.name+".tar")
	if err := imagebuild.WriteTar(archive, ref, images...); err != nil {
		return err
	}
	if opts.push {
		if err := imagebuild.Push(ctx, ref, images...); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(stdout, "%s %s %s\n", ref, digest, archive)
	return err
}
