package imagebuild_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
)

func twoPlatforms(t *testing.T) []v1.Image {
	t.Helper()
	spec := testSpec(t)
	amd64 := build(t, spec)
	spec.Platform.Architecture = "arm64"
	return []v1.Image{amd64, build(t, spec)}
}

func writeTar(t *testing.T, ref string, images ...v1.Image) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := imagebuild.WriteTar(path, ref, images...); err != nil {
		t.Fatal(err)
	}
	return path
}

// unpack extracts an archive the way an importer would and opens the layout.
func unpack(t *testing.T, path string) (dir string, index v1.ImageIndex) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	dir = t.TempDir()
	archive := tar.NewReader(file)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeDir {
			err = os.Mkdir(filepath.Join(dir, header.Name), 0o700)
		} else {
			var content []byte
			if content, err = io.ReadAll(archive); err == nil {
				err = os.WriteFile(filepath.Join(dir, header.Name), content, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	index, err = layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, index
}

func TestWriteTarIsReproducible(t *testing.T) {
	read := func(path string) []byte {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	for name, images := range map[string]func() []v1.Image{
		"one":  func() []v1.Image { return []v1.Image{build(t, testSpec(t))} },
		"many": func() []v1.Image { return twoPlatforms(t) },
	} {
		one, two := read(writeTar(t, "a/b:1", images()...)), read(writeTar(t, "a/b:1", images()...))
		if !bytes.Equal(one, two) {
			t.Errorf("%s: same images, different archives", name)
		}
	}
}

// hub is what containerd calls the registry of names without one.
var hub = strings.TrimPrefix(name.DefaultRegistry, "index.")

func TestWriteTarReadsBack(t *testing.T) {
	tests := map[string]struct {
		ref, wantName, wantTag string
	}{
		"full":             {"registry.example/team/app:v1", "registry.example/team/app:v1", "v1"},
		"default registry": {"team/app:v1", hub + "/team/app:v1", "v1"},
		"no namespace":     {"app", hub + "/library/app:latest", "latest"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			image := build(t, testSpec(t))
			dir, index := unpack(t, writeTar(t, test.ref, image))
			if err := validate.Index(index); err != nil {
				t.Fatal(err)
			}
			manifest, err := index.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			digest, err := image.Digest()
			if err != nil {
				t.Fatal(err)
			}
			if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest != digest {
				t.Fatalf("index lists %v, want only %s", manifest.Manifests, digest)
			}
			want := map[string]string{
				"io.containerd.image.name":          test.wantName,
				"org.opencontainers.image.ref.name": test.wantTag,
			}
			if diff := cmp.Diff(want, manifest.Manifests[0].Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			checkDockerManifest(t, dir, test.wantName)
		})
	}
}

func checkDockerManifest(t *testing.T, dir, wantName string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var docker []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(content, &docker); err != nil {
		t.Fatal(err)
	}
	if len(docker) != 1 {
		t.Fatalf("manifest.json has %d images", len(docker))
	}
	if diff := cmp.Diff([]string{wantName}, docker[0].RepoTags); diff != "" {
		t.Errorf("RepoTags (-want +got):\n%s", diff)
	}
	for _, blob := range append(docker[0].Layers, docker[0].Config) {
		if _, err := os.Stat(filepath.Join(dir, blob)); err != nil {
			t.Error(err)
		}
	}
}

func TestWriteTarManyPlatforms(t *testing.T) {
	images := twoPlatforms(t)
	dir, index := unpack(t, writeTar(t, "a/b:1", images...))
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	// One name, one entry: importers keep only the last of several by one name.
	if len(manifest.Manifests) != 1 {
		t.Fatalf("%d entries in index.json, want 1", len(manifest.Manifests))
	}
	nested, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := nested.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, descriptor := range inner.Manifests {
		got = append(got, descriptor.Platform.String())
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, got); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err == nil {
		t.Error("manifest.json is there although it cannot tell platforms apart")
	}
}

func TestWriteTarErrors(t *testing.T) {
	image := build(t, testSpec(t))
	tests := map[string]struct {
		ref    string
		images []v1.Image
		want   string
	}{
		"no image":           {"a/b:1", nil, "no image"},
		"bad reference":      {"A/B:1", []v1.Image{image}, "repository"},
		"platform twice":     {"a/b:1", []v1.Image{image, image}, "two images for platform linux/amd64"},
		"digest as the name": {"a/b@sha256:" + strings.Repeat("0", 64), []v1.Image{image}, "repository"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			err := imagebuild.WriteTar(filepath.Join(dir, "image.tar"), test.ref, test.images...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one that says %q", err, test.want)
			}
			left, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(left) != 0 {
				t.Errorf("%v is left behind", left)
			}
		})
	}
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // The developer's credentials are none of our business.

	for label, images := range map[string][]v1.Image{"one": {build(t, testSpec(t))}, "many": twoPlatforms(t)} {
		t.Run(label, func(t *testing.T) {
			ref := strings.TrimPrefix(server.URL, "http://") + "/team/" + label + ":v1"
			if err := imagebuild.Push(t.Context(), ref, images...); err != nil {
				t.Fatal(err)
			}
			parsed, err := name.ParseReference(ref)
			if err != nil {
				t.Fatal(err)
			}
			got, err := remote.Head(parsed)
			if err != nil {
				t.Fatal(err)
			}
			root, err := imagebuild.Root(images...)
			if err != nil {
				t.Fatal(err)
			}
			want, err := root.Digest()
			if err != nil {
				t.Fatal(err)
			}
			if got.Digest != want {
				t.Errorf("pushed %s, want %s", got.Digest, want)
			}
		})
	}
}

func TestPushStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := imagebuild.Push(ctx, "127.0.0.1:1/a:1", build(t, testSpec(t))); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}
