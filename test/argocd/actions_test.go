package argocd

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

var update = flag.Bool("update", false, "write config/argocd/argocd-cm.yaml")

type action struct {
	Name     string `json:"name"`
	Disabled bool   `json:"disabled"`
}

type actionTests struct {
	Discovery []struct {
		InputPath string   `json:"inputPath"`
		Result    []action `json:"result"`
	} `json:"discoveryTests"`
	Actions []struct {
		Action             string `json:"action"`
		InputPath          string `json:"inputPath"`
		ExpectedOutputPath string `json:"expectedOutputPath"`
	} `json:"actionTests"`
}

func readActionTests(t *testing.T) actionTests {
	t.Helper()
	var tests actionTests
	if err := yaml.UnmarshalStrict(read(t, "actions/action_test.yaml"), &tests); err != nil {
		t.Fatal(err)
	}
	if len(tests.Discovery) == 0 || len(tests.Actions) == 0 {
		t.Fatal("actions/action_test.yaml has no tests")
	}
	return tests
}

func TestDiscovery(t *testing.T) {
	for _, test := range readActionTests(t).Discovery {
		t.Run(test.InputPath, func(t *testing.T) {
			result, err := Run(string(read(t, "actions/discovery.lua")), object(t, filepath.Join("actions", test.InputPath)))
			if err != nil {
				t.Fatal(err)
			}
			var got []action
			for _, name := range slices.Sorted(maps.Keys(result)) {
				encoded, err := json.Marshal(result[name])
				found := action{Name: name}
				if err != nil || json.Unmarshal(encoded, &found) != nil {
					t.Fatalf("%s: %v", name, result[name])
				}
				got = append(got, found)
			}
			if diff := cmp.Diff(test.Result, got); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// refreshed takes the time of a refresh out of an object, and checks that it is one.
func refreshed(t *testing.T, object map[string]any) {
	t.Helper()
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if when, ok := annotations[mcpv1alpha1.AnnotationRefresh].(string); ok {
		if _, err := time.Parse(time.RFC3339, when); err != nil {
			t.Errorf("refreshed at %q", when)
		}
		annotations[mcpv1alpha1.AnnotationRefresh] = "some time"
	}
}

func TestActions(t *testing.T) {
	tested := map[string]bool{}
	for _, test := range readActionTests(t).Actions {
		tested[test.Action] = true
		t.Run(test.Action+" "+test.InputPath, func(t *testing.T) {
			before := object(t, filepath.Join("actions", test.InputPath))
			got, err := Run(string(read(t, filepath.Join("actions", test.Action, "action.lua"))), before)
			if err != nil {
				t.Fatal(err)
			}
			want := object(t, filepath.Join("actions", test.ExpectedOutputPath))
			if cmp.Equal(before, want) {
				t.Fatal("the action is expected to change nothing")
			}
			refreshed(t, want)
			refreshed(t, got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff(map[string]bool{"refresh": true, "suspend": true, "resume": true}, tested); diff != "" {
		t.Errorf("actions with a test (-want +got):\n%s", diff)
	}
}

// What users apply has the scripts that are tested.
func TestConfigMapPatchHasTheScripts(t *testing.T) {
	script := func(path string) string { return string(read(t, path)) }
	type definition struct {
		Name string `json:"name"`
		Lua  string `json:"action.lua"`
	}
	actions := struct {
		Discovery   string       `json:"discovery.lua"`
		Definitions []definition `json:"definitions"`
	}{Discovery: script("actions/discovery.lua")}
	for _, name := range []string{"refresh", "suspend", "resume"} {
		actions.Definitions = append(actions.Definitions, definition{name, script("actions/" + name + "/action.lua")})
	}
	encoded, err := yaml.Marshal(actions)
	if err != nil {
		t.Fatal(err)
	}
	content, err := yaml.Marshal(map[string]any{"data": map[string]string{
		"resource.customizations.health.mcp.slipway.dev_MCPServer":  script("health.lua"),
		"resource.customizations.actions.mcp.slipway.dev_MCPServer": string(encoded),
	}})
	if err != nil {
		t.Fatal(err)
	}
	const command = "# Written by go test ./test/argocd -update. Apply it to the ConfigMap of Argo CD:\n" +
		"# kubectl -n argocd patch configmap argocd-cm --type merge --patch-file config/argocd/argocd-cm.yaml\n"
	want := command + string(content)
	path := filepath.Join(directory, "argocd-cm.yaml")
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, string(read(t, "argocd-cm.yaml"))); diff != "" {
		t.Errorf("argocd-cm.yaml is out of date; go test ./test/argocd -update writes it (-want +got):\n%s", diff)
	}
	var patch corev1.ConfigMap
	if err := yaml.UnmarshalStrict([]byte(want), &patch); err != nil || len(patch.Data) != 2 {
		t.Errorf("%d entries, %v", len(patch.Data), err)
	}
}
