package imagebuild_test

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
)

// writeArchive writes a tar with one file.
func writeArchive(t *testing.T, name, content string) string {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "image.tar")
	file, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	writer := tar.NewWriter(file)
	if err := writer.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return archive
}

func TestNames(t *testing.T) {
	ours := filepath.Join(t.TempDir(), "ours.tar")
	if err := imagebuild.WriteTar(ours, "registry.example/slipway/echo:1.4", build(t, testSpec(t))); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		archive string
		want    []string
	}{
		"of make images": {ours, []string{"registry.example/slipway/echo:1.4"}},
		"of docker save": {writeArchive(t, "manifest.json", `[{"Config":"c","RepoTags":["b:2","a:1"]},{"RepoTags":["b:2"]}]`), []string{"a:1", "b:2"}},
		"without a name": {writeArchive(t, "manifest.json", `[{"Config":"c","RepoTags":null}]`), nil},
		"of another tool": {
			writeArchive(t, "./index.json", `{"schemaVersion":2,"manifests":[{"digest":"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","annotations":{"io.containerd.image.name":"c:3","org.opencontainers.image.ref.name":"3"}},{"annotations":{"org.opencontainers.image.ref.name":"latest"}}]}`),
			[]string{"c:3"},
		},
		"something else": {writeArchive(t, "readme", "hello"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := imagebuild.Names(test.archive)
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("names (-want +got): %v\n%s", err, diff)
			}
		})
	}
	for name, archive := range map[string]string{
		"no file":      filepath.Join(t.TempDir(), "none"),
		"broken index": writeArchive(t, "index.json", `{`),
	} {
		if _, err := imagebuild.Names(archive); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
