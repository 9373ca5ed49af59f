// Package imagebuild assembles OCI images from files, reproducibly and without
// a container engine.
//
// The same Spec always becomes the same bytes: entries are sorted, every time
// stamp is Spec.Created, every owner is root, and modes come from the Spec
// rather than from the disk, where the umask of the day decides.
package imagebuild

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is one entry of an image's only layer.
type File struct {
	// Path is where the file appears in the image: absolute and clean.
	Path string
	// Source is a regular file on disk; symbolic links are followed.
	// Exactly one of Source and Content is set, for a directory neither.
	Source string
	// Content is the file's content; empty but not nil makes an empty file.
	Content []byte
	// Mode is the permission bits, 0644 when zero. With fs.ModeDir the entry is
	// a directory, with fs.ModeSymlink a link to what Content names; setuid,
	// setgid and sticky are kept; other types are refused.
	Mode fs.FileMode
}

// Spec is everything that decides an image's bytes.
type Spec struct {
	Platform        v1.Platform
	Files           []File
	Entrypoint, Cmd []string
	Env             []string
	User            string
	WorkingDir      string
	Labels          map[string]string
	// Created is the time of the image and of every file in it, cut to seconds;
	// zero means the Unix epoch.
	Created time.Time
}

// Image builds an image of one layer on an empty base. Parent directories that
// the Spec does not name are made with mode 0755.
func Image(spec Spec) (v1.Image, error) {
	if spec.Platform.OS == "" || spec.Platform.Architecture == "" {
		return nil, errors.New("build image: the platform needs an operating system and an architecture")
	}
	created := spec.Created.UTC().Truncate(time.Second)
	if spec.Created.IsZero() {
		created = time.Unix(0, 0).UTC()
	}
	entries, err := plan(spec.Files)
	if err != nil {
		return nil, fmt.Errorf("build image: %w", err)
	}

	// Cached, because a layer that is compressed once more for every reader
	// could also differ for every reader if a source changes meanwhile.
	layer, err := tarball.LayerFromOpener(opener(entries, created),
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("build image: write layer: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "slipway imagebuild"},
	})
	if err != nil {
		return nil, fmt.Errorf("build image: append layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("build image: read config: %w", err)
	}
	config = config.DeepCopy()
	config.OS = spec.Platform.OS
	config.Architecture = spec.Platform.Architecture
	config.Variant = spec.Platform.Variant
	config.OSVersion = spec.Platform.OSVersion
	config.OSFeatures = spec.Platform.OSFeatures
	config.Created = v1.Time{Time: created}
	config.Config = v1.Config{
		Entrypoint: spec.Entrypoint,
		Cmd:        spec.Cmd,
		Env:        spec.Env,
		User:       spec.User,
		WorkingDir: spec.WorkingDir,
		Labels:     spec.Labels,
	}
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		return nil, fmt.Errorf("build image: write config: %w", err)
	}
	return image, nil
}
