package imagebuild

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Annotations on the descriptor in index.json by which importers name an image.
const (
	annotationContainerdName = "io.containerd.image.name"
	annotationRefName        = "org.opencontainers.image.ref.name"
)

// WriteTar writes an OCI image layout as one tar file at path, byte for byte
// the same for the same images. ref is the tagged name under which `ctr images
// import` and `docker load` will list it. A Docker engine that keeps images in
// its own store rather than in containerd's reads manifest.json, which knows no
// platforms: it is there only when there is one image.
func WriteTar(path, ref string, images ...v1.Image) error {
	if err := writeTar(path, ref, images); err != nil {
		return fmt.Errorf("write image archive %s: %w", path, err)
	}
	return nil
}

func writeTar(path, ref string, images []v1.Image) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	root, err := Root(images...)
	if err != nil {
		return err
	}
	layout, err := newLayout(tag, root, images)
	if err != nil {
		return err
	}

	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }() // Gone already when all went well.
	err = layout.write(temporary)
	err = errors.Join(err, temporary.Chmod(0o644), temporary.Close())
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// blob is a piece of content that is opened when its turn to be written comes.
type blob struct {
	size int64
	open func() (io.ReadCloser, error)
}

// layout is a file tree by slash-separated name.
type layout map[string]blob

func newLayout(tag name.Tag, root Artifact, images []v1.Image) (layout, error) {
	l := layout{}
	for _, image := range images {
		if err := l.addImage(image); err != nil {
			return nil, err
		}
	}
	descriptor, err := l.addRoot(root, images)
	if err != nil {
		return nil, err
	}
	descriptor.Annotations = map[string]string{
		annotationContainerdName: fullName(tag),
		annotationRefName:        tag.TagStr(),
	}
	index := v1.IndexManifest{
		SchemaVersion: 2,
		MediaType:     types.OCIImageIndex,
		Manifests:     []v1.Descriptor{*descriptor},
	}
	if err := l.addJSON("index.json", index); err != nil {
		return nil, err
	}
	if err := l.addJSON("oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}); err != nil {
		return nil, err
	}
	if len(images) == 1 {
		return l, l.addDockerManifest(tag, images[0])
	}
	return l, nil
}

// addRoot makes sure that the blob index.json points at is there and describes it.
func (l layout) addRoot(root Artifact, images []v1.Image) (*v1.Descriptor, error) {
	if len(images) == 1 {
		return describe(images[0])
	}
	manifest, err := root.RawManifest()
	if err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	descriptor, err := partial.Descriptor(root)
	if err != nil {
		return nil, fmt.Errorf("describe index: %w", err)
	}
	l.addBytes(blobName(descriptor.Digest), manifest)
	return descriptor, nil
}

func (l layout) addImage(image v1.Image) error {
	layers, err := image.Layers()
	if err != nil {
		return fmt.Errorf("read layers: %w", err)
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return fmt.Errorf("read layer digest: %w", err)
		}
		size, err := layer.Size()
		if err != nil {
			return fmt.Errorf("read layer size: %w", err)
		}
		l[blobName(digest)] = blob{size: size, open: layer.Compressed}
	}
	for _, part := range []struct {
		digest func() (v1.Hash, error)
		bytes  func() ([]byte, error)
	}{{image.ConfigName, image.RawConfigFile}, {image.Digest, image.RawManifest}} {
		digest, err := part.digest()
		if err != nil {
			return fmt.Errorf("compute digest: %w", err)
		}
		content, err := part.bytes()
		if err != nil {
			return fmt.Errorf("read %s: %w", digest, err)
		}
		l.addBytes(blobName(digest), content)
	}
	return nil
}

// addDockerManifest adds the table of contents of `docker save`'s own format.
func (l layout) addDockerManifest(tag name.Tag, image v1.Image) error {
	manifest, err := image.Manifest()
	if err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	type item struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	entry := item{Config: blobName(manifest.Config.Digest), RepoTags: []string{fullName(tag)}}
	for _, layer := range manifest.Layers {
		entry.Layers = append(entry.Layers, blobName(layer.Digest))
	}
	return l.addJSON("manifest.json", []item{entry})
}

func (l layout) addJSON(name string, value any) error {
	content, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	l.addBytes(name, content)
	return nil
}

func (l layout) addBytes(name string, content []byte) {
	l[name] = blob{
		size: int64(len(content)),
		open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
	}
}

func (l layout) write(w io.Writer) error {
	tw := tar.NewWriter(w)
	for _, dir := range []string{"blobs/", "blobs/sha256/"} {
		header := &tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, ModTime: time.Unix(0, 0)}
		if err := tw.WriteHeader(header); err != nil {
			return fmt.Errorf("write %s: %w", dir, err)
		}
	}
	names := make([]string, 0, len(l))
	for name := range l {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := l[name].write(tw, name); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return tw.Close()
}

func (b blob) write(tw *tar.Writer, name string) error {
	content, err := b.open()
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // Only read from.
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: b.size, Mode: 0o644, ModTime: time.Unix(0, 0)}
	if err := tw.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(tw, content)
	return err
}

func blobName(digest v1.Hash) string {
	return "blobs/" + digest.Algorithm + "/" + digest.Hex
}

// fullName is the name the way containerd and the kubelet spell it; only
// go-containerregistry calls the default registry by its host name.
func fullName(tag name.Tag) string {
	full := tag.Name()
	if strings.HasPrefix(full, name.DefaultRegistry+"/") {
		return strings.TrimPrefix(full, "index.")
	}
	return full
}
