package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const testVersion = "v0.1.0-rc.1"

// stub is a module whose kubectl-mcp only tells its version: the real one takes minutes to compile. It is not in git, so
// that commits to this checkout during a test change nothing.
func stub(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "internal/version"), os.DirFS("../../internal/version")); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"go.mod": "module github.com/slipway-mcp/slipway\n\ngo 1.26\n",
		"cmd/kubectl-mcp/main.go": "package main\n\nimport \"github.com/slipway-mcp/slipway/internal/version\"\n\n" +
			"func main() { println(\"kubectl-mcp version\", version.Get().Version) }\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// release makes one of this checkout, and returns its files.
func release(t *testing.T, source string, platforms ...platform) (directory string, files map[string][]byte) {
	t.Helper()
	opts := options{
		root: "../..", source: source, out: filepath.Join(t.TempDir(), "release"), version: testVersion,
		prefix: "registry.example/slipway", downloads: "https://downloads.example", platforms: platforms,
	}
	if err := run(t.Context(), opts, io.Discard); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(opts.out)
	if err != nil {
		t.Fatal(err)
	}
	files = map[string][]byte{}
	for _, entry := range entries {
		if files[entry.Name()], err = os.ReadFile(filepath.Join(opts.out, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return opts.out, files
}

func TestRelease(t *testing.T) { testRelease(t, platform{runtime.GOOS, runtime.GOARCH}) }

// For another system, the standard library is compiled, too.
func TestLongReleaseWithWindows(t *testing.T) {
	testRelease(t, platform{runtime.GOOS, runtime.GOARCH}, platform{"windows", "amd64"})
}

func testRelease(t *testing.T, platforms ...platform) {
	t.Helper()
	directory, files := release(t, stub(t), platforms...)
	want := map[string]bool{"slipway.yaml": true, "install.yaml": true, "crds.yaml": true, "images.txt": true, sumsFile: true}
	programs := map[string]string{}
	for _, p := range platforms {
		want[archiveOf(p)] = true
		programs[p.String()] = "kubectl-mcp"
		if p.os == "windows" {
			programs[p.String()] = "kubectl-mcp.exe"
		}
	}
	if _, err := os.Stat("../../charts/slipway/Chart.yaml"); err == nil {
		want["slipway-0.1.0-rc.1.tgz"] = true
	}
	got := map[string]bool{}
	for name := range files {
		got[name] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("files (-want +got):\n%s", diff)
	}
	checkSums(t, directory, files)
	checkKrew(t, files, programs)
	checkManifests(t, files)
	checkProgram(t, unpackTarGz(t, files[archiveOf(platforms[0])]))
}

// archiveOf is the name that people know the archive of a platform by.
func archiveOf(p platform) string {
	extension := ".tar.gz"
	if p.os == "windows" {
		extension = ".zip"
	}
	return "kubectl-mcp_" + testVersion + "_" + p.os + "_" + p.arch + extension
}

func TestLongReleaseOfTheRealProgram(t *testing.T) {
	_, files := release(t, "../..", platform{runtime.GOOS, runtime.GOARCH})
	checkProgram(t, unpackTarGz(t, files[archiveOf(platform{runtime.GOOS, runtime.GOARCH})]))
}

func TestSameSourceSameBytes(t *testing.T) {
	var releases [2]map[string][]byte
	for i := range releases {
		_, releases[i] = release(t, stub(t), platform{runtime.GOOS, runtime.GOARCH})
	}
	for name, content := range releases[0] {
		if !bytes.Equal(content, releases[1][name]) {
			t.Errorf("%s differs between two runs", name)
		}
	}
	if len(releases[0]) != len(releases[1]) {
		t.Errorf("%d and %d files", len(releases[0]), len(releases[1]))
	}
}

// checkSums has the sums of every file, and, where there is the program for it, lets that read them.
func checkSums(t *testing.T, directory string, files map[string][]byte) {
	t.Helper()
	got := map[string]string{}
	for line := range strings.Lines(string(files[sumsFile])) {
		digest, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		got[name] = digest
	}
	want := map[string]string{}
	for name, content := range files {
		if name != sumsFile {
			want[name] = sum(content)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("checksums (-want +got):\n%s", diff)
	}
	if _, err := exec.LookPath("sha256sum"); err != nil {
		return
	}
	command := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", sumsFile)
	command.Dir = directory
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("sha256sum --check: %v\n%s", err, output)
	}
}

// checkProgram runs the program of an archive.
func checkProgram(t *testing.T, archive map[string]unpacked) {
	t.Helper()
	license, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	if got := archive["LICENSE"]; !bytes.Equal(got.content, license) || got.mode != 0o644 || len(archive) != 2 {
		t.Errorf("%d files, and LICENSE has mode %o and %d bytes", len(archive), got.mode, len(got.content))
	}
	program := archive["kubectl-mcp"]
	path := filepath.Join(t.TempDir(), "kubectl-mcp")
	if err := os.WriteFile(path, program.content, program.mode); err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), path, "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(output), testVersion) {
		t.Errorf("kubectl-mcp --version: %q, %v", output, err)
	}
}

type unpacked struct {
	mode    fs.FileMode
	content []byte
}

func unpackTarGz(t *testing.T, archive []byte) map[string]unpacked {
	t.Helper()
	files := map[string]unpacked{}
	uncompressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for reader := tar.NewReader(uncompressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = unpacked{header.FileInfo().Mode(), content}
	}
}

func unpackZip(t *testing.T, archive []byte) map[string]unpacked {
	t.Helper()
	reader, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]unpacked{}
	for _, entry := range reader.File {
		opened, err := entry.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(opened)
		if err = errors.Join(err, opened.Close()); err != nil {
			t.Fatal(err)
		}
		files[entry.Name] = unpacked{entry.Mode(), content}
	}
	return files
}

func TestRunRefuses(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "kubectl-mcp_v0.0.9_linux_amd64.tar.gz"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		version, out, want string
	}{
		"no version":           {"", t.TempDir(), "name the VERSION: a release is called like v0.1.0 or v0.2.0-rc.1: make release-dry-run VERSION=v0.1.0"},
		"a commit":             {"e4c9d9b07e0e-dirty-12345678", t.TempDir(), `VERSION is "e4c9d9b07e0e-dirty-12345678" and must begin with v`},
		"without v":            {"0.1.0", t.TempDir(), `must begin with v`},
		"two numbers":          {"v0.1", t.TempDir(), `VERSION is "v0.1", which is not a semantic version`},
		"a leading zero":       {"v0.01.0", t.TempDir(), `not a semantic version`},
		"two v":                {"vv0.1.0", t.TempDir(), `not a semantic version`},
		"build metadata":       {"v0.1.0+dirty", t.TempDir(), `the tag of an image cannot have a +`},
		"long":                 {"v0.1.0-" + strings.Repeat("a", 60), t.TempDir(), `67 characters, and a label can have 63`},
		"an earlier release":   {"v0.1.0", full, "is not empty, and its files would look like part of the release: remove it first"},
		"a space in the front": {" v0.1.0", t.TempDir(), `must begin with v`},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), options{root: "../..", source: "../..", out: test.out, version: test.version}, io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func TestParsePlatforms(t *testing.T) {
	got, err := parsePlatforms("linux/amd64  windows/arm64")
	if err != nil || len(got) != 2 || got[0].String() != "linux/amd64" || got[1].String() != "windows/arm64" {
		t.Errorf("%v, %v", got, err)
	}
	for _, list := range []string{"", "  ", "linux", "linux/", "/amd64", "linux/amd64 mac"} {
		if _, err := parsePlatforms(list); err == nil {
			t.Errorf("parsePlatforms took %q", list)
		}
	}
}
