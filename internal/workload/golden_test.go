package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	kindschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/registry"
)

var update = flag.Bool("update", false, "write the golden files")

const testReferences = "f00dfeedf00dfeedf00dfeedf00dfeed"

// cases are the directories in testdata.
func cases(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	if len(names) < 10 {
		t.Fatalf("found %d cases", len(names))
	}
	return names
}

// readInput reads a case: an MCPServer, with what the API server would fill in, and
// what its image says of itself, if it could be resolved.
func readInput(t *testing.T, name string) Input {
	t.Helper()
	in := Input{
		Server:        &mcpv1alpha1.MCPServer{},
		Adapter:       Adapter{Image: "registry.example/slipway/adapter:v0.1.0", PullPolicy: corev1.PullIfNotPresent, Version: "v0.1.0"},
		ClusterDomain: "cluster.example",
	}
	text, err := os.ReadFile(filepath.Join("testdata", name, "input.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.UnmarshalStrict(text, &object); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralSchema()
	if err != nil {
		t.Fatal(err)
	}
	defaulting.Default(object, structural)
	defaulted, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(defaulted, in.Server); err != nil {
		t.Fatal(err)
	}
	if len(in.Server.Spec.EnvFrom) > 0 {
		in.References = testReferences
	}
	text, err = os.ReadFile(filepath.Join("testdata", name, "image.yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		return in
	}
	in.Image = &registry.Image{}
	if err := errors.Join(err, yaml.UnmarshalStrict(text, in.Image)); err != nil {
		t.Fatal(err)
	}
	return in
}

// readCRD is read once: the race detector makes that take long.
var readCRD = sync.OnceValues(func() (*apiextensionsv1.CustomResourceDefinition, error) {
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", "mcp.slipway.dev_mcpservers.yaml"))
	crd := &apiextensionsv1.CustomResourceDefinition{}
	return crd, errors.Join(err, yaml.Unmarshal(text, crd))
})

var structuralSchema = sync.OnceValues(func() (*schema.Structural, error) {
	crd, err := readCRD()
	if err != nil {
		return nil, err
	}
	internal := &apiextensions.JSONSchemaProps{}
	given := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(given, internal, nil); err != nil {
		return nil, err
	}
	return schema.NewStructural(internal)
})

// golden compares an object with a file. A nil object has none. With a kind, the file
// must hold nothing that Kubernetes does not know.
func golden(t *testing.T, file string, object, kind any) {
	t.Helper()
	got := encode(t, object)
	if *update {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if got == nil {
			return
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -update writes what it got):\n%s", file, diff)
	}
	if got != nil && kind != nil {
		if err := yaml.UnmarshalStrict(got, kind); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func encode(t *testing.T, object any) []byte {
	t.Helper()
	encoded, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if string(encoded) == "null" {
		return nil
	}
	text, err := yaml.JSONToYAML(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// objectParts are what the objects of a case are built from.
func objectParts(t *testing.T, in Input) Parts {
	t.Helper()
	document, err := Settings(in.Server, in.ClusterDomain).Encode()
	if err != nil {
		t.Fatal(err)
	}
	access, err := accessOf(in).Sign(testKey(t, "00"))
	if err != nil {
		t.Fatal(err)
	}
	template, err := PodTemplate(in)
	if err != nil {
		t.Fatal(err)
	}
	return Parts{Server: in.Server, Template: template, Settings: document, Access: access, Catalog: &Catalog{Digest: "sha256:ab", JSON: []byte(`{"tools":[]}`)}}
}

// build builds every object of a case that is applied.
func build(t *testing.T, in Input) []any {
	t.Helper()
	parts := objectParts(t, in)
	objects := []any{parts.Template}
	for _, owned := range AllOwned() {
		if owned.Build == nil {
			continue
		}
		if object := owned.Build(parts); object != nil {
			objects = append(objects, object)
		}
	}
	return objects
}

// kindOf is an empty object of a kind that Kubernetes itself has, or nil.
func kindOf(kind kindschema.GroupVersionKind) any {
	object, err := scheme.Scheme.New(kind)
	if err != nil {
		return nil
	}
	return object
}

func TestGolden(t *testing.T) {
	for _, name := range cases(t) {
		t.Run(name, func(t *testing.T) {
			in := readInput(t, name)
			file := func(name string) string { return filepath.Join("testdata", filepath.Base(t.Name()), name) }
			parts := objectParts(t, in)
			for _, owned := range AllOwned() {
				// What depends on little of the spec is looked at with all of it, and with the longest name.
				if owned.Build != nil && (!owned.HasStep || name == "everything" || name == "long-name" || in.Server.Spec.Auth != nil) {
					golden(t, file(string(owned.ID)+".yaml"), owned.Build(parts), kindOf(owned.Kind))
				}
			}
		})
	}
}

// testKey is a key of one byte, repeated.
func testKey(t *testing.T, hexByte string) adapterapi.Key {
	t.Helper()
	key, err := adapterapi.ParseKey(strings.Repeat(hexByte, adapterapi.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// What does not depend on much is looked at once, with the longest name there is.
func TestGoldenOthers(t *testing.T) {
	in := readInput(t, "long-name")
	file := func(name string) string { return filepath.Join("testdata", "long-name", name) }
	golden(t, file("secret.yaml"), KeysSecret(in.Server, testKey(t, "00"), testKey(t, "ff")), nil)
	golden(t, file("catalog-trimmed.yaml"), CatalogConfigMap(in.Server,
		Catalog{Digest: "sha256:cd", JSON: []byte(`{}`), Trimmed: "the schemas of 12 tools were left out"}), &corev1.ConfigMap{})
	revision, err := Revision(in.Server, Rendered{
		Inputs: Inputs{Format: 1, Content: []byte(`{"spec":{}}`), Hash: "h", References: "r"}, ImageName: in.Server.Spec.Image,
		Image: &registry.Image{Reference: "a@b", Digest: "b"}, AdapterVersion: "v0.1.0", Template: []byte(`{"spec":{}}`),
	}, 7, "ReferenceChange")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, file("revision.yaml"), revision, nil)
	in.Users = UserAssigned
	template, err := PodTemplate(in)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, file("deployment-assigned.yaml"), Deployment(in.Server, template, Replicas(in.Server)), &appsv1.Deployment{})
}

// The same input gives the same bytes: a map's order must not restart pods.
func TestDeterminism(t *testing.T) {
	in := readInput(t, "everything")
	render := func() []byte {
		encoded, err := json.Marshal(append(build(t, in), InputsOf(in.Server, "r")))
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}
	first := render()
	for range 50 { // two keys of a map that come in any order differ almost at once
		if got := render(); !bytes.Equal(first, got) {
			t.Fatalf("differs (-first +later):\n%s", cmp.Diff(string(first), string(got)))
		}
	}
}

// Builders do not change their input, and what they return shares no memory with it:
// the caller that applies it writes the API server's answer into it.
func TestPurity(t *testing.T) {
	for _, name := range cases(t) {
		in, want := readInput(t, name), readInput(t, name)
		for range 2 {
			for _, config := range build(t, in) {
				scribble(t, config)
			}
			_ = InputsOf(in.Server, "r")
			words := Command(in.Server, in.Image)
			for i := range words {
				words[i] = "scribbled"
			}
		}
		if diff := cmp.Diff(want, in); diff != "" {
			t.Errorf("%s: the input was changed (-before +after):\n%s", name, diff)
		}
	}
}
