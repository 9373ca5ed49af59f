package argocd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

const directory = "../../config/argocd"

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(directory, path))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// object reads one of the test data, which must be an MCPServer.
func object(t *testing.T, path string) map[string]any {
	t.Helper()
	if err := yaml.UnmarshalStrict(read(t, path), &mcpv1alpha1.MCPServer{}); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var object map[string]any
	if err := yaml.Unmarshal(read(t, path), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// TestHealth does what TestLuaHealthScript of Argo CD does with this directory.
func TestHealth(t *testing.T) {
	var cases struct {
		Tests []struct {
			InputPath    string `json:"inputPath"`
			HealthStatus Health `json:"healthStatus"`
		} `json:"tests"`
	}
	if err := yaml.UnmarshalStrict(read(t, "health_test.yaml"), &cases); err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, test := range cases.Tests {
		tested[test.InputPath] = true
		t.Run(test.InputPath, func(t *testing.T) {
			got, err := HealthOf(string(read(t, "health.lua")), object(t, test.InputPath))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.HealthStatus, got); diff != "" {
				t.Errorf("health (-want +got):\n%s", diff)
			}
		})
	}
	inputs, err := filepath.Glob(filepath.Join(directory, "testdata", "*.yaml"))
	if err != nil || len(inputs) == 0 {
		t.Fatalf("%d inputs, %v", len(inputs), err)
	}
	for _, input := range inputs {
		if path := "testdata/" + filepath.Base(input); !tested[path] {
			t.Errorf("health_test.yaml has no case for %s", path)
		}
	}
}

func TestRefusesWhatArgoCDRefuses(t *testing.T) {
	for name, script := range map[string]string{
		"no health":            `return {status = "Great"}`,
		"nothing":              `local a = 1`,
		"a text":               `return "Healthy"`,
		"an error":             `return obj.status.conditions`,
		"a library":            `return {status = "Healthy", message = string.upper("a")}`,
		"a part of a library":  `return {status = "Healthy", message = os.getenv("HOME")}`,
		"a required library":   `return {status = "Healthy", message = require("os").getenv("HOME")}`,
		"not the right fields": `return {status = "Healthy", reason = "a"}`,
	} {
		if health, err := HealthOf(script, map[string]any{}); err == nil {
			t.Errorf("%s: %+v", name, health)
		}
	}
}
