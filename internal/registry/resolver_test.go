package registry

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func TestResolve(t *testing.T) {
	full := v1.Config{
		Entrypoint: []string{"/server", "--stdio"}, Cmd: []string{"serve"}, User: "65532:65532",
		Env: []string{"PATH=/bin", "HOME=/home/old", "HOMEPAGE=x", "HOME=/home/app"},
	}
	images := map[string]v1.Image{
		"linux/amd64": picture(t, "amd64", full), "linux/arm64": picture(t, "arm64", v1.Config{Cmd: []string{"arm64"}}),
		"windows/amd64":   picture(t, "amd64", v1.Config{Cmd: []string{"windows"}}),
		"unknown/unknown": picture(t, "unknown", v1.Config{Cmd: []string{"attestation"}}),
		"":                picture(t, "amd64", v1.Config{Cmd: []string{"does not say"}}),
	}
	const none = ""
	index := func(order ...string) v1.ImageIndex { return indexOf(t, images, order...) }
	nested := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index("linux/arm64", "linux/amd64")})
	fullImage := Image{Entrypoint: full.Entrypoint, Cmd: full.Cmd, User: full.User, Home: "/home/app"}
	for name, test := range map[string]struct {
		content remote.Taggable
		suffix  string // of the reference
		want    Image  // without reference and digest
		missing bool
	}{
		"one image":                {content: images["linux/amd64"], suffix: ":1.4", want: fullImage},
		"without a tag":            {content: images["linux/amd64"], want: fullImage},
		"by digest":                {content: images["linux/amd64"], suffix: "@" + digestOf(t, images["linux/amd64"]), want: fullImage},
		"by tag and digest":        {content: images["linux/amd64"], suffix: ":gone@" + digestOf(t, images["linux/amd64"]), want: fullImage},
		"image that says nothing":  {content: picture(t, "amd64", v1.Config{}), suffix: ":1", want: Image{}},
		"index, own architecture":  {content: index("unknown/unknown", "windows/amd64", "linux/arm64", "linux/amd64"), suffix: ":1", want: fullImage},
		"index, other":             {content: index("windows/amd64", "linux/arm64"), suffix: ":1", want: Image{Cmd: []string{"arm64"}}},
		"index without a platform": {content: index("windows/amd64", none), suffix: ":1", want: Image{Cmd: []string{"does not say"}}},
		"index of an index":        {content: nested, suffix: ":1", want: fullImage},
		"index without Linux":      {content: index("unknown/unknown", "windows/amd64"), suffix: ":1", missing: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen requests
			host := serve(t, seen.record(storage()))
			repository := host + "/team/tool"
			reference := repository + test.suffix
			tag, _, _ := strings.Cut(test.suffix, "@")
			store(t, repository+tag, test.content)
			stored := len(seen.list())
			resolver := patient(Options{Architecture: "amd64"})
			if test.missing {
				if problem := problemOf(t, resolver, reference); problem.Kind != NotFound {
					t.Errorf("got %v", problem)
				}
				return
			}
			got, err := resolver.Resolve(t.Context(), reference, nil)
			if err != nil {
				t.Fatal(err)
			}
			test.want.Digest = digestOf(t, test.content.(interface{ Digest() (v1.Hash, error) }))
			test.want.Reference = repository + "@" + test.want.Digest
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			blobs := 0
			for _, request := range seen.list()[stored:] {
				if strings.Contains(request.URL.Path, "/blobs/") {
					blobs++
				}
				if request.Method != http.MethodGet || !strings.HasPrefix(request.UserAgent(), "slipway/") {
					t.Errorf("%s by %s", request.Method, request.UserAgent())
				}
			}
			if blobs != 1 {
				t.Errorf("%d blobs read, want the config alone", blobs)
			}
		})
	}
}

func TestReferences(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for reference, want := range map[string]string{
		"nginx":                              "docker.io/library/nginx latest",
		"nginx:1.27":                         "docker.io/library/nginx 1.27",
		"team/tool":                          "docker.io/team/tool latest",
		"docker.io/team/tool:1":              "docker.io/team/tool 1",
		"index.docker.io/nginx":              "docker.io/library/nginx latest",
		"registry.example:5000/a/b/c:v1.0_x": "registry.example:5000/a/b/c v1.0_x",
		"registry.example/tool@" + digest:    "registry.example/tool " + digest,
		"registry.example/tool:1@" + digest:  "registry.example/tool " + digest,
		"":                                   "the image has no name",
		"https://registry.example/tool":      "without a scheme",
		"Registry.example/Team/Tool":         "is no image reference",
		"registry.example/tool: 1":           "is no image reference",
		"registry.example/tool@sha256:abc":   "is no image reference",
		"registry.example/tool@md5:abc":      "is no image reference",
		"registry.example/tool@" + "sha384:" + strings.Repeat("a", 96): "is no image reference",
		"user:password@registry.example/tool":                          "is no image reference",
		"registry.example/../tool":                                     "is no image reference",
		"registry.example/a//tool":                                     "is no image reference",
		"registry.example/a/./tool":                                    "is no image reference",
		"registry.example/tool:..":                                     "is no image reference",
		"registry.example%2f/tool":                                     "is no image reference",
		"[::1]:5000/tool":                                              "[::1]:5000/tool latest",
		"a\nb":                                                         `"a\nb" is no image reference`,
		strings.Repeat("a/", 10_000) + "tool":                          "too long",
	} {
		t.Run(shortened(reference), func(t *testing.T) {
			ref, problem := parse(reference)
			if problem == nil {
				if got := familiarName(ref.Context()) + " " + ref.Identifier(); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				return
			}
			if problem.Kind != Invalid || !strings.Contains(problem.Detail, want) || len(problem.Error()) > 2000 {
				t.Errorf("got %s %v, want %s", problem.Kind, problem, want)
			}
		})
	}
	if problem := problemOf(t, patient(Options{}), "No/Reference"); problem.Kind != Invalid {
		t.Errorf("got %v", problem)
	}
}
