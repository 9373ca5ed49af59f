package imagebuild

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// maxIndex bounds what of an index is read.
const maxIndex = 8 << 20

// Names returns the names that importers give to the images in an archive, sorted: those of
// an OCI layout, and those of what `docker save` writes.
func Names(archive string) (names []string, err error) {
	file, err := os.Open(archive)
	if err != nil {
		return nil, fmt.Errorf("read names of images: %w", err)
	}
	defer func() { _ = file.Close() }()
	for entries := tar.NewReader(file); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return slices.Compact(names), nil
		}
		if err == nil {
			var found []string
			found, err = namesIn(path.Clean(header.Name), io.LimitReader(entries, maxIndex))
			names = append(names, found...)
		}
		if err != nil {
			return nil, fmt.Errorf("read names of images in %s: %w", archive, err)
		}
	}
}

// namesIn returns the names in one file of an archive, which has none unless it is an index.
func namesIn(file string, content io.Reader) (names []string, err error) {
	switch file {
	case "index.json":
		var index v1.IndexManifest
		if err := json.NewDecoder(content).Decode(&index); err != nil {
			return nil, fmt.Errorf("decode %s: %w", file, err)
		}
		for i := range index.Manifests {
			if name := index.Manifests[i].Annotations[annotationContainerdName]; name != "" {
				names = append(names, name)
			}
		}
	case "manifest.json":
		var images []struct{ RepoTags []string }
		if err := json.NewDecoder(content).Decode(&images); err != nil {
			return nil, fmt.Errorf("decode %s: %w", file, err)
		}
		for _, image := range images {
			names = append(names, image.RepoTags...)
		}
	}
	return names, nil
}
