package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/slipway-mcp/slipway/hack/internal/gobuild"
	"github.com/slipway-mcp/slipway/hack/internal/gobuild/gobuildtest"
)

// adapterOnly keeps these tests quick: the manager's dependencies take minutes to
// compile for an image the first time, and go the same way. The tests whose names begin
// with TestLong build the real adapter, the others the one of stub.
func adapterOnly(t *testing.T) []definition {
	t.Helper()
	for _, candidate := range definitions {
		if candidate.name == "adapter" {
			return []definition{candidate}
		}
	}
	t.Fatal("no definition of the adapter")
	return nil
}

// checkout copies what the adapter is built from to a directory of its own.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, path := range []string{"cmd/sidecar", "cmd/launcher", "internal"} {
		if err := os.CopyFS(filepath.Join(dir, path), os.DirFS(filepath.Join("../..", path))); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, file), string(content))
	}
	return dir
}

// stub is a checkout whose programs only tell their version.
func stub(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "internal/version"), os.DirFS("../../internal/version")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "go.mod"), "module github.com/slipway-mcp/slipway\n\ngo 1.26\n")
	for i, program := range adapterOnly(t)[0].programs {
		write(t, filepath.Join(dir, program, "main.go"), `package main

import "github.com/slipway-mcp/slipway/internal/version"

func main() { println("`+filepath.Base(adapterOnly(t)[0].path(i))+`", version.Get().String()) }
`)
	}
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSameSourceSameBytes(t *testing.T) { sameSourceSameBytes(t, stub) }

func TestLongSameSourceSameBytes(t *testing.T) { sameSourceSameBytes(t, checkout) }

func sameSourceSameBytes(t *testing.T, checkout func(*testing.T) string) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	var archives [2][]byte
	var lines [2]string
	for i := range archives {
		// Another checkout, another umask's files, another output.
		opts := options{
			root: checkout(t), out: filepath.Join(t.TempDir(), "images"), definitions: adapterOnly(t),
			prefix: "registry.example/slipway", version: "v1.2.3",
		}
		if err := parsePlatforms("linux/amd64,linux/arm64", &opts); err != nil {
			t.Fatal(err)
		}
		var stdout bytes.Buffer
		if err := run(t.Context(), opts, &stdout); err != nil {
			t.Fatal(err)
		}
		archive, err := os.ReadFile(filepath.Join(opts.out, "adapter.tar"))
		if err != nil {
			t.Fatal(err)
		}
		archives[i] = archive
		lines[i], _, _ = strings.Cut(stdout.String(), " "+opts.out)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two builds of the same source differ")
	}
	if diff := cmp.Diff(lines[0], lines[1]); diff != "" || !strings.HasPrefix(lines[0], "registry.example/slipway/adapter:v1.2.3 sha256:") {
		t.Errorf("the lines printed: %q", lines)
	}
}

func TestImage(t *testing.T) { testImage(t, stub(t)) }

func TestLongImage(t *testing.T) { testImage(t, checkout(t)) }

// testImage builds an image of a checkout and looks at it. The checkout is committed to a
// repository of its own, in which nothing changes meanwhile.
func testImage(t *testing.T, root string) {
	gobuildtest.OwnGit(t)
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	gobuildtest.Commit(t, root)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	opts := options{
		root: root, out: t.TempDir(), definitions: adapterOnly(t),
		prefix: strings.TrimPrefix(server.URL, "http://") + "/slipway", version: "v1.2.3", push: true,
	}
	if err := parsePlatforms("linux/"+runtime.GOARCH, &opts); err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	if err := run(t.Context(), opts, &stdout); err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(filepath.Join(opts.out, "adapter.tar"), nil)
	if err != nil {
		t.Fatal(err)
	}

	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	src, err := gobuild.ReadSource(t.Context(), root)
	if err != nil || len(src.Commit) != 40 {
		t.Fatalf("commit %q, %v", src.Commit, err)
	}
	want := v1.Config{
		Entrypoint: []string{"/adapter"},
		User:       "65532:65532",
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":       "slipway-adapter",
			"org.opencontainers.image.description": adapterOnly(t)[0].description,
			"org.opencontainers.image.version":     "v1.2.3",
			"org.opencontainers.image.revision":    src.Commit,
		},
	}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if created := config.Created.Unix(); created != 1700000000 {
		t.Errorf("created at %d, want SOURCE_DATE_EPOCH", created)
	}

	dir := extract(t, image)
	for _, program := range []string{"adapter", "launcher"} {
		output, err := exec.CommandContext(t.Context(), filepath.Join(dir, program), "--version").CombinedOutput()
		if got, want := string(output), program+" v1.2.3 (commit "+src.Commit+", "; err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s --version: %q, %v; want it to begin with %q", program, got, err, want)
		}
	}
	checkPushed(t, opts.prefix+"/adapter:v1.2.3", stdout.String())
}

// checkPushed requires that the registry has the digest that was printed.
func checkPushed(t *testing.T, ref, printed string) {
	t.Helper()
	parsed, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	descriptor, err := remote.Head(parsed)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(printed, ref+" "+descriptor.Digest.String()) {
		t.Errorf("the registry has %s, printed was %q", descriptor.Digest, printed)
	}
}

// extract writes the image's regular files to a directory.
func extract(t *testing.T, image v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("layers: %d, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }() // Only read from.
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return dir
		} else if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		file, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(header.Name)), file, header.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestParsePlatformsRefuses(t *testing.T) {
	for _, list := range []string{"", "linux/amd64,", "linux/s390x", "windows/amd64", "linux/arm64/v8"} {
		if err := parsePlatforms(list, &options{}); err == nil {
			t.Errorf("parsePlatforms took %q", list)
		}
	}
}
