package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// checkKrew holds the manifest against rules of krew's own validation (internal/index/validation of sigs.k8s.io/krew), which
// TestLongKrewInstallsThePlugin runs, and against the archives.
func checkKrew(t *testing.T, files map[string][]byte, programs map[string]string) {
	t.Helper()
	var plugin krewPlugin
	if err := yaml.UnmarshalStrict(files["slipway.yaml"], &plugin); err != nil {
		t.Fatal(err)
	}
	if plugin.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || plugin.Kind != "Plugin" || plugin.Spec.Version != testVersion {
		t.Errorf("%s %s, version %s", plugin.APIVersion, plugin.Kind, plugin.Spec.Version)
	}
	// The file must be called like the plugin.
	if plugin.Metadata.Name != "slipway" || !regexp.MustCompile(`^[\w-]+$`).MatchString(plugin.Metadata.Name) {
		t.Errorf("name %q", plugin.Metadata.Name)
	}
	if short := plugin.Spec.ShortDescription; short == "" || strings.ContainsAny(short, "\r\n") {
		t.Errorf("short description %q", short)
	}
	got := map[string]string{}
	for _, platform := range plugin.Spec.Platforms {
		labels := platform.Selector.MatchLabels
		got[labels["os"]+"/"+labels["arch"]] = platform.Bin
		if len(labels) != 2 || len(platform.Selector.MatchExpressions) > 0 {
			t.Errorf("selector %+v", platform.Selector)
		}
		name, ok := strings.CutPrefix(platform.URI, "https://downloads.example/"+testVersion+"/")
		archive, isThere := files[name]
		if !ok || !isThere || platform.SHA256 != sum(archive) {
			t.Errorf("%s has the sum %s, but the archive %q has %s", platform.URI, platform.SHA256, name, sum(archive))
			continue
		}
		unpack := unpackTarGz
		if strings.HasSuffix(name, ".zip") {
			unpack = unpackZip
		}
		// krew refuses plugins without a license, and runs bin.
		content := unpack(t, archive)
		if program := content[platform.Bin]; program.mode != 0o755 || len(content["LICENSE"].content) == 0 {
			t.Errorf("%s: %s has mode %o, LICENSE has %d bytes", name, platform.Bin, program.mode, len(content["LICENSE"].content))
		}
	}
	if diff := cmp.Diff(programs, got); diff != "" {
		t.Errorf("platforms and programs (-want +got):\n%s", diff)
	}
}

func checkManifests(t *testing.T, files map[string][]byte) {
	t.Helper()
	if got, want := string(files["images.txt"]), "registry.example/slipway/adapter:"+testVersion+"\nregistry.example/slipway/manager:"+testVersion+"\n"; got != want {
		t.Errorf("images.txt is %q, want %q", got, want)
	}
	var released, source apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(files["crds.yaml"], &released); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile("../../config/crd/bases/mcp.slipway.dev_mcpservers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, &source); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(source.Spec, released.Spec); diff != "" || released.Name != source.Name {
		t.Errorf("crds.yaml has %s (-source +released):\n%s", released.Name, diff)
	}
	if !strings.Contains(string(files["install.yaml"]), string(files["crds.yaml"])) {
		t.Error("crds.yaml differs from what install.yaml has")
	}
}

func TestSplitRefuses(t *testing.T) {
	for name, content := range map[string]string{
		"nothing":        "",
		"no definitions": "kind: Deployment\nspec: {template: {spec: {containers: [{image: a}]}}}\n",
		"no images":      "kind: CustomResourceDefinition\n",
		"broken":         "kind: [\n",
	} {
		if _, _, err := split([]byte(content)); err == nil {
			t.Errorf("%s: split took it", name)
		}
	}
}

func TestSplitHasSeveralDefinitions(t *testing.T) {
	definitions, images, err := split([]byte("kind: Namespace\n---\nkind: CustomResourceDefinition\nmetadata: {name: a}\n---\n" +
		"kind: Deployment\nspec: {template: {spec: {containers: [{image: b}, {image: a, env: [{name: SLIPWAY_ADAPTER_IMAGE, value: b}]}]}}}\n---\n" +
		"kind: CustomResourceDefinition\nmetadata: {name: b}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := "kind: CustomResourceDefinition\nmetadata: {name: a}\n---\nkind: CustomResourceDefinition\nmetadata: {name: b}\n"
	if string(definitions) != want || strings.Join(images, " ") != "a b" {
		t.Errorf("%q, %q", definitions, images)
	}
}
