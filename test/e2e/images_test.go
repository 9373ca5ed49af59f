//go:build e2e

package e2e

import (
	"context"
	"io/fs"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
	"github.com/slipway-mcp/slipway/test/conformance"
	"github.com/slipway-mcp/slipway/test/npm"
)

// imageSet makes the images that specs ask for, each once.
type imageSet struct {
	programs string            // a directory
	refs     map[string]string // by name, of those that are in the registry
}

// buildPrograms builds the servers that go into images.
func buildPrograms(ctx context.Context) *imageSet {
	GinkgoHelper()
	set := &imageSet{programs: GinkgoT().TempDir(), refs: map[string]string{}}
	for _, program := range []string{"echo", "hostile", "era", "agent"} {
		buildStatic(ctx, filepath.Join(set.programs, program), "./test/servers/"+program)
	}
	buildStatic(ctx, filepath.Join(set.programs, "everything-server"), "-modfile=hack/tools/go.mod",
		"github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	return set
}

// buildStatic builds a program that runs on an empty base.
func buildStatic(ctx context.Context, output string, args ...string) {
	GinkgoHelper()
	run(ctx, "env", append([]string{"CGO_ENABLED=0", "go", "build", "-o", output}, args...)...)
}

// servers is an image with the echo server as its command, and /hostile and
// /everything-server beside it, /era, which takes one of its eras away, and /agent, a client.
func (s *imageSet) servers(ctx context.Context) string {
	GinkgoHelper()
	return s.variant(ctx, "servers", func(*imagebuild.Spec) {})
}

// variant is the servers' image but for what change does to it.
func (s *imageSet) variant(ctx context.Context, name string, change func(*imagebuild.Spec)) string {
	GinkgoHelper()
	return s.image(ctx, name, func() imagebuild.Spec {
		spec := imagebuild.Spec{Entrypoint: []string{"/echo"}}
		for _, program := range []string{"echo", "hostile", "era", "agent", "everything-server"} {
			spec.Files = append(spec.Files, imagebuild.File{Path: "/" + program, Source: filepath.Join(s.programs, program), Mode: 0o755})
		}
		change(&spec)
		return spec
	})
}

// Programs of the node image.
const (
	nodeProgram      = "/usr/bin/node"
	everythingScript = "/everything/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
	suiteScript      = "/conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js"
)

// node is an image of what npm serves: Node.js, the reference server with every
// feature, and the conformance suite.
func (s *imageSet) node(ctx context.Context) string {
	GinkgoHelper()
	return s.image(ctx, "node", func() imagebuild.Spec {
		suite, err := conformance.Install(ctx, filepath.Join("..", "conformance"))
		Expect(err).NotTo(HaveOccurred())
		everything, err := npm.Install(ctx, filepath.Join("..", "everything"))
		Expect(err).NotTo(HaveOccurred())
		files := []imagebuild.File{{Path: nodeProgram, Source: suite.Node, Mode: 0o755}}
		files = append(files, libraries(ctx, suite.Node)...)
		files = append(files, tree("/everything/node_modules", everything)...)
		files = append(files, tree("/conformance/node_modules", suite.Modules)...)
		// The package runs as the user that images of Node.js have.
		return imagebuild.Spec{Files: files, Entrypoint: []string{nodeProgram}, User: "node"}
	})
}

// image builds an image and pushes it under a name that depends on its content, so no pod
// runs one that an earlier run of the suite left on a node.
func (s *imageSet) image(ctx context.Context, name string, spec func() imagebuild.Spec) string {
	GinkgoHelper()
	if ref := s.refs[name]; ref != "" {
		return ref
	}
	made := spec()
	made.Platform = v1.Platform{OS: "linux", Architecture: goruntime.GOARCH}
	image, err := imagebuild.Image(made)
	Expect(err).NotTo(HaveOccurred())
	ref := gate.registry + "/" + name + ":" + contentTag(image)
	Expect(imagebuild.Push(ctx, ref, image)).To(Succeed())
	s.refs[name] = ref
	return ref
}

func contentTag(image v1.Image) string {
	GinkgoHelper()
	digest, err := image.Digest()
	Expect(err).NotTo(HaveOccurred())
	return digest.Hex[:16]
}

// sharedLibrary finds the paths in what ldd prints.
var sharedLibrary = regexp.MustCompile(`(?m)(/\S+) \(0x`)

// libraries are the shared libraries that a program needs, where it looks for them.
func libraries(ctx context.Context, program string) []imagebuild.File {
	GinkgoHelper()
	var files []imagebuild.File
	for _, match := range sharedLibrary.FindAllStringSubmatch(run(ctx, "ldd", program), -1) {
		files = append(files, imagebuild.File{Path: match[1], Source: match[1], Mode: 0o755})
	}
	Expect(files).NotTo(BeEmpty())
	return files
}

// tree is what is below a directory, without programs and links that only shells use.
func tree(target, source string) []imagebuild.File {
	GinkgoHelper()
	var files []imagebuild.File
	Expect(filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == ".bin" || strings.HasPrefix(entry.Name(), "node-linux-")) {
			return fs.SkipDir
		}
		if entry.Type().IsRegular() {
			relative, err := filepath.Rel(source, path)
			if err != nil {
				return err
			}
			files = append(files, imagebuild.File{Path: filepath.Join(target, relative), Source: path})
		}
		return nil
	})).To(Succeed())
	return files
}
