package imagebuild

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Push uploads one image, or an index of several for different platforms, under
// ref, with the credentials that the docker client would use. What arrives has
// the digest that WriteTar writes for the same images.
func Push(ctx context.Context, ref string, images ...v1.Image) error {
	parsed, err := name.ParseReference(ref)
	if err != nil {
		return fmt.Errorf("push image: %w", err)
	}
	root, err := Root(images...)
	if err != nil {
		return fmt.Errorf("push image %s: %w", ref, err)
	}
	if err := remote.Push(parsed, root, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push image %s: %w", ref, err)
	}
	return nil
}

// Artifact is what a reference points at: an image or an index.
type Artifact interface {
	remote.Taggable
	Digest() (v1.Hash, error)
	MediaType() (types.MediaType, error)
	Size() (int64, error)
}

// Root returns the single image itself, or the index of several in the order given.
func Root(images ...v1.Image) (Artifact, error) {
	switch len(images) {
	case 0:
		return nil, errors.New("no image given")
	case 1:
		return images[0], nil
	}
	seen := map[string]bool{}
	addenda := make([]mutate.IndexAddendum, 0, len(images))
	for _, image := range images {
		descriptor, err := describe(image)
		if err != nil {
			return nil, err
		}
		platform := descriptor.Platform.String()
		if seen[platform] {
			return nil, fmt.Errorf("two images for platform %s", platform)
		}
		seen[platform] = true
		addenda = append(addenda, mutate.IndexAddendum{Add: image, Descriptor: *descriptor})
	}
	return mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), addenda...), nil
}

// describe is the image's descriptor including the platform, which only the
// image's config knows.
func describe(image v1.Image) (*v1.Descriptor, error) {
	descriptor, err := partial.Descriptor(image)
	if err != nil {
		return nil, fmt.Errorf("describe image: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read image config: %w", err)
	}
	descriptor.Platform = config.Platform()
	return descriptor, nil
}
