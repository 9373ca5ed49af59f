package imagebuild_test

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
)

var created = time.Date(2026, 3, 4, 5, 6, 7, 8, time.FixedZone("elsewhere", 3600))

func testSpec(t *testing.T) imagebuild.Spec {
	t.Helper()
	source := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(source, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	return imagebuild.Spec{
		Platform: v1.Platform{OS: "linux", Architecture: "amd64"},
		Files: []imagebuild.File{
			{Path: "/usr/bin/program", Source: source, Mode: 0o755},
			{Path: "/etc/empty", Content: []byte{}},
			{Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
			{Path: "/bin/su", Content: []byte("x"), Mode: fs.ModeSetuid | 0o755},
			{Path: "/usr/bin/other", Content: []byte("program"), Mode: fs.ModeSymlink | 0o777},
		},
		Entrypoint: []string{"/usr/bin/program"},
		Cmd:        []string{"serve"},
		Env:        []string{"A=1"},
		User:       "65532:65532",
		WorkingDir: "/tmp",
		Labels:     map[string]string{"b": "2", "a": "1"},
		Created:    created,
	}
}

func build(t *testing.T, spec imagebuild.Spec) v1.Image {
	t.Helper()
	image, err := imagebuild.Image(spec)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestImageIsReproducible(t *testing.T) {
	first := testSpec(t)
	second := testSpec(t) // Another source file: other name, other mtime.
	second.Files[0], second.Files[3] = second.Files[3], second.Files[0]
	if err := os.Chtimes(second.Files[3].Source, created, created); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(second.Files[3].Source, 0o755); err != nil {
		t.Fatal(err)
	}
	one, err := build(t, first).Digest()
	if err != nil {
		t.Fatal(err)
	}
	two, err := build(t, second).Digest()
	if err != nil {
		t.Fatal(err)
	}
	if one != two {
		t.Errorf("same input, digests %s and %s", one, two)
	}
}

func TestImageLayer(t *testing.T) {
	image := build(t, testSpec(t))
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	if len(layers) != 1 {
		t.Fatalf("%d layers, want 1", len(layers))
	}
	want := []entry{
		{"bin/", 0o755, ""},
		{"bin/su", 0o4755, "x"},
		{"etc/", 0o755, ""},
		{"etc/empty", 0o644, ""},
		{"tmp/", 0o1777, ""},
		{"usr/", 0o755, ""},
		{"usr/bin/", 0o755, ""},
		{"usr/bin/other", 0o777, "-> program"},
		{"usr/bin/program", 0o755, "program"},
	}
	if diff := cmp.Diff(want, readLayer(t, layers[0])); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
}

type entry struct {
	Name    string
	Mode    int64
	Content string
}

// readLayer lists the entries, and checks what is the same for all of them.
func readLayer(t *testing.T, layer v1.Layer) []entry {
	t.Helper()
	reader, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	var got []entry
	archive := tar.NewReader(reader)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeSymlink {
			content = []byte("-> " + header.Linkname)
		}
		got = append(got, entry{header.Name, header.Mode, string(content)})
		if header.Uid != 0 || header.Gid != 0 || header.Uname != "" || header.Gname != "" {
			t.Errorf("%s is owned by %d:%d (%q:%q)", header.Name, header.Uid, header.Gid, header.Uname, header.Gname)
		}
		if !header.ModTime.Equal(created.Truncate(time.Second)) {
			t.Errorf("%s has time %s", header.Name, header.ModTime)
		}
	}
}

func TestImageConfig(t *testing.T) {
	spec := testSpec(t)
	config, err := build(t, spec).ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{
		Entrypoint: spec.Entrypoint,
		Cmd:        spec.Cmd,
		Env:        spec.Env,
		User:       spec.User,
		WorkingDir: spec.WorkingDir,
		Labels:     spec.Labels,
	}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if got := config.Platform().String(); got != "linux/amd64" {
		t.Errorf("platform %s", got)
	}
	if want := created.UTC().Truncate(time.Second); config.Created.Time != want {
		t.Errorf("created %s, want %s", config.Created.Time, want)
	}
}

func TestImageRefusesBadInput(t *testing.T) {
	content := []byte("x")
	dir := t.TempDir()
	tests := map[string]struct {
		files []imagebuild.File
		want  string
	}{
		"relative":         {[]imagebuild.File{{Path: "bin/sh", Content: content}}, "not absolute"},
		"empty path":       {[]imagebuild.File{{Content: content}}, "not absolute"},
		"dotdot":           {[]imagebuild.File{{Path: "/a/../../etc", Content: content}}, `write "/etc"`},
		"trailing slash":   {[]imagebuild.File{{Path: "/a/", Content: content}}, `write "/a"`},
		"root":             {[]imagebuild.File{{Path: "/", Mode: fs.ModeDir}}, "root directory"},
		"NUL":              {[]imagebuild.File{{Path: "/a\x00b", Content: content}}, "NUL"},
		"whiteout":         {[]imagebuild.File{{Path: "/a/.wh.b", Content: content}}, "whiteout"},
		"twice":            {[]imagebuild.File{{Path: "/a", Content: content}, {Path: "/a", Content: content}}, "named twice"},
		"file as parent":   {[]imagebuild.File{{Path: "/a/b", Content: content}, {Path: "/a", Content: content}}, `parent "/a" is a file`},
		"both":             {[]imagebuild.File{{Path: "/a", Content: content, Source: dir}}, "both"},
		"neither":          {[]imagebuild.File{{Path: "/a"}}, "neither"},
		"directory filled": {[]imagebuild.File{{Path: "/a", Mode: fs.ModeDir, Content: content}}, "directory has"},
		"link to nothing":  {[]imagebuild.File{{Path: "/a", Mode: fs.ModeSymlink}}, "target as content"},
		"device":           {[]imagebuild.File{{Path: "/a", Mode: fs.ModeDevice, Content: content}}, "only regular files"},
		"missing source":   {[]imagebuild.File{{Path: "/a", Source: filepath.Join(dir, "none")}}, "no such file"},
		"directory source": {[]imagebuild.File{{Path: "/a", Source: dir}}, "not a regular file"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := imagebuild.Image(imagebuild.Spec{Platform: v1.Platform{OS: "linux", Architecture: "amd64"}, Files: test.files})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one that says %q", err, test.want)
			}
		})
	}
	if _, err := imagebuild.Image(imagebuild.Spec{}); err == nil || !strings.Contains(err.Error(), "platform") {
		t.Errorf("no platform: error %v", err)
	}
}
