// Command release writes everything that a release of Slipway publishes into a directory: archives of
// kubectl-mcp, a krew manifest, install.yaml, crds.yaml, the Helm chart, names of images and checksums. The same
// commit always gives the same bytes. It uploads nothing.
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
	"strings"

	"github.com/slipway-mcp/slipway/hack/internal/gobuild"
)

// options are what the command line says.
type options struct {
	root      string // of the checkout
	source    string // of the module that kubectl-mcp is compiled from, and of the commit: root, but for tests
	out       string
	version   string
	prefix    string // of the names of images
	downloads string // where the files of a release will be, without the version
	platforms []platform
}

func main() {
	opts := options{root: ".", source: "."}
	flag.StringVar(&opts.version, "version", "", "the `version` of the release, such as v0.1.0")
	flag.StringVar(&opts.out, "out", "dist/release", "the `directory` to write; it must be empty, or not exist")
	flag.StringVar(&opts.prefix, "prefix", "ghcr.io/slipway-mcp/slipway", "the registry and `path` that the names of images begin with")
	flag.StringVar(&opts.downloads, "downloads", "https://github.com/slipway-mcp/slipway/releases/download",
		"the `URL` below which the release is published, in a directory with the name of its version")
	platforms := flag.String("platforms", "", "`list` of platforms for kubectl-mcp, such as \"linux/amd64 windows/amd64\"")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if opts.platforms, err = parsePlatforms(*platforms); err == nil {
		err = run(ctx, opts, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run writes the release. Files that do not take minutes come first, so that their mistakes show early.
func run(ctx context.Context, opts options, stdout io.Writer) error {
	if err := checkVersion(opts.version); err != nil {
		return err
	}
	src, err := gobuild.ReadSource(ctx, opts.source)
	if err != nil {
		return err
	}
	if err := emptyDirectory(opts.out); err != nil {
		return err
	}
	if err := writeManifests(ctx, opts); err != nil {
		return err
	}
	if err := writeChart(opts, src.Created); err != nil {
		return err
	}
	archives, err := writePlugin(ctx, opts, src)
	if err != nil {
		return err
	}
	if err := writeKrew(opts, archives); err != nil {
		return err
	}
	sums, err := writeSums(opts.out)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s\nThese files are in %s, built from commit %s. Nothing was uploaded.\n",
		strings.TrimSpace(sums), opts.out, src.Commit)
	return err
}

// emptyDirectory makes a directory. One with files is refused: those of another version would be published, too.
func emptyDirectory(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // Build output is for everybody to read.
		return fmt.Errorf("make directory %s: %w", path, err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("read directory %s: %w", path, err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty, and its files would look like part of the release: remove it first", path)
	}
	return nil
}

// publish writes a file of the release.
func (o options) publish(name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(o.out, name), content, 0o644); err != nil { //nolint:gosec // Build output is for everybody to read.
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// platform is what kubectl-mcp is compiled for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

func parsePlatforms(list string) ([]platform, error) {
	var platforms []platform
	for name := range strings.FieldsSeq(list) {
		os, arch, ok := strings.Cut(name, "/")
		if !ok || os == "" || arch == "" {
			return nil, fmt.Errorf("read platforms: %q is not an operating system and an architecture, such as linux/amd64", name)
		}
		platforms = append(platforms, platform{os, arch})
	}
	if len(platforms) == 0 {
		return nil, errors.New("name the platforms of kubectl-mcp, such as --platforms linux/amd64")
	}
	return platforms, nil
}
