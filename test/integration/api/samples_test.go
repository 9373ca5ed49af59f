package api

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestSamplesAreAccepted(t *testing.T) {
	dir := filepath.Join(repository, "config", "samples")
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatalf("list samples: %v", err)
	}
	var samples []string
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		samples = append(samples, filepath.Base(file))
		t.Run(filepath.Base(file), func(t *testing.T) {
			object := &unstructured.Unstructured{}
			readYAML(t, file, &object.Object)
			object.SetNamespace("default")
			if err := dryRun(t.Context(), object); err != nil {
				t.Errorf("create: %v", err)
			}
		})
	}

	var kustomization struct{ Resources []string }
	readYAML(t, filepath.Join(dir, "kustomization.yaml"), &kustomization)
	slices.Sort(kustomization.Resources)
	if diff := cmp.Diff(samples, kustomization.Resources); diff != "" {
		t.Errorf("kustomization.yaml does not list the samples that are there (-there +listed):\n%s", diff)
	}
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read file: %v", err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatalf("decode %s: %v", file, err)
	}
}
