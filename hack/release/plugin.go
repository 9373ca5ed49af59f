package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/slipway-mcp/slipway/hack/internal/gobuild"
)

const program = "kubectl-mcp"

// archive is a published archive of kubectl-mcp.
type archive struct {
	platform platform
	name     string
	program  string // in the archive
	sum      string
}

// writePlugin compiles kubectl-mcp for each platform and writes its archive.
func writePlugin(ctx context.Context, opts options, src gobuild.Source) (_ []archive, err error) {
	license, err := os.ReadFile(filepath.Join(opts.root, "LICENSE"))
	if err != nil {
		return nil, fmt.Errorf("read license: %w", err)
	}
	binaries, err := os.MkdirTemp("", "slipway-release-")
	if err != nil {
		return nil, fmt.Errorf("make directory for binaries: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(binaries)) }()

	var archives []archive
	for _, platform := range opts.platforms {
		made := archive{platform: platform, program: program}
		if platform.os == "windows" {
			made.program += ".exe"
		}
		binary, err := compile(ctx, opts, src, made, filepath.Join(binaries, platform.os+"_"+platform.arch))
		if err != nil {
			return nil, err
		}
		pack, extension := tarGz, ".tar.gz"
		if platform.os == "windows" {
			pack, extension = zipped, ".zip"
		}
		content, err := pack([]file{
			{name: made.program, mode: 0o755, content: binary},
			{name: "LICENSE", mode: 0o644, content: license},
		}, src.Created)
		if err != nil {
			return nil, fmt.Errorf("pack %s for %s: %w", program, platform, err)
		}
		made.name = strings.Join([]string{program, opts.version, platform.os, platform.arch}, "_") + extension
		made.sum = sum(content)
		if err := opts.publish(made.name, content); err != nil {
			return nil, err
		}
		archives = append(archives, made)
	}
	return archives, nil
}

func compile(ctx context.Context, opts options, src gobuild.Source, made archive, directory string) ([]byte, error) {
	err := gobuild.Compile(ctx, gobuild.Programs{
		Root: opts.source, Paths: []string{"cmd/" + program}, Version: opts.version,
		OS: made.platform.os, Arch: made.platform.arch, Directory: directory,
	}, src)
	if err != nil {
		return nil, err
	}
	binary, err := os.ReadFile(filepath.Join(directory, made.program))
	if err != nil {
		return nil, fmt.Errorf("read program for %s: %w", made.platform, err)
	}
	return binary, nil
}

func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}

// sumsFile is what sha256sum -c reads.
const sumsFile = "SHA256SUMS"

// writeSums writes the checksums of all files of a directory.
func writeSums(directory string) (string, error) {
	entries, err := os.ReadDir(directory) // in the order of names
	if err != nil {
		return "", fmt.Errorf("read directory %s: %w", directory, err)
	}
	var sums strings.Builder
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		if err != nil {
			return "", fmt.Errorf("read %s: %w", entry.Name(), err)
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum(content), entry.Name())
	}
	return sums.String(), options{out: directory}.publish(sumsFile, []byte(sums.String()))
}
