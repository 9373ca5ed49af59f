package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// needed are the values that a template cannot do without, and those that would turn off without a word what is on.
var needed = map[string]bool{
	"adapter": true, "adapter.image": true, "crds": true, "crds.enabled": true, "crds.keep": true, "image": true, "image.prefix": true, "image.pullPolicy": true,
	"manager": true, "manager.image": true, "metrics": true, "metrics.podMonitor": true, "metrics.podMonitor.enabled": true, "metrics.prometheusRule": true,
	"metrics.prometheusRule.enabled": true, "metrics.serviceMonitor": true, "metrics.serviceMonitor.enabled": true, "networkPolicy": true, "networkPolicy.enabled": true,
	"podDisruptionBudget": true, "podDisruptionBudget.enabled": true, "podDisruptionBudget.maxUnavailable": true, "rbac": true, "rbac.aggregateToDefaultRoles": true,
	"rbac.authDelegator": true, "rbac.create": true, "rbac.namespaceLabels": true, "replicas": true, "serviceAccount": true, "serviceAccount.create": true, "serviceAccount.name": true,
}

// cleared are values with a default, and what null takes away.
var cleared = map[string]struct {
	object string
	path   []any
}{
	"networkPolicy.metricsFrom": {"NetworkPolicy/slipway-system/slipway-manager", []any{"spec", "ingress"}},
	"nodeSelector":              {deployment, pod("nodeSelector")},
	"resources":                 {deployment, manager("resources")},
	"resources.limits.memory":   {deployment, manager("resources", "limits", "memory")},
	"topologySpreadConstraints": {deployment, pod("topologySpreadConstraints")},
}

// Helm takes away the default of a value that is null. The value is then empty, or the schema names what is missing.
func TestNullTakesAwayADefault(t *testing.T) {
	all := `{replicas: 2, podDisruptionBudget: {enabled: true}, metrics: {serviceMonitor: {enabled: true}, podMonitor: {enabled: true}, prometheusRule: {enabled: true}}}`
	usual := render(t, all)
	for _, path := range pathsIn(load(t).Values) {
		name := strings.Join(path, ".")
		t.Run(name, func(t *testing.T) {
			values := decode(t, all)
			set(values, path, nil)
			objects, notes, err := tryRender(t, format(t, values))
			clears, hasDefault := cleared[name]
			switch {
			case needed[name]:
				if want := fmt.Sprintf("missing property '%s'", path[len(path)-1]); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			case err != nil:
				t.Errorf("%v", err)
			case strings.Contains(fmt.Sprint(objects, notes), "%!"):
				t.Errorf("something is not printed:\n%v\n%s", objects, notes)
			case hasDefault:
				if got := at(objects[clears.object], clears.path...); got != nil || at(usual[clears.object], clears.path...) == nil {
					t.Errorf("it is %v", got)
				}
			case isEmpty(at(load(t).Values, steps(path)...)):
				if diff := cmp.Diff(usual, objects); diff != "" {
					t.Errorf("null is not the same as the empty default:\n%s", diff)
				}
			}
		})
	}
}

// A field of the configuration that is null is one that is not there: the manager has its default.
func TestNullInTheConfiguration(t *testing.T) {
	full, err := os.ReadFile(filepath.Join(repository, "internal", "config", "testdata", "full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config := decode(t, string(full))
	delete(config, "apiVersion") // the chart has these two
	delete(config, "kind")
	for _, path := range pathsIn(config) {
		t.Run(strings.Join(path, "."), func(t *testing.T) {
			without, null := runtime.DeepCopyJSON(config), runtime.DeepCopyJSON(config)
			below := at(without, steps(path[:len(path)-1])...).(map[string]any)
			delete(below, path[len(path)-1])
			set(null, path, nil)
			want, got := render(t, format(t, map[string]any{"config": without})), render(t, format(t, map[string]any{"config": null}))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("without and with null:\n%s", diff)
			}
		})
	}
}

// pathsIn are those of all objects and values in an object.
func pathsIn(of map[string]any) (paths [][]string) {
	for key, value := range of {
		paths = append(paths, []string{key})
		if below, ok := value.(map[string]any); ok {
			for _, path := range pathsIn(below) {
				paths = append(paths, append([]string{key}, path...))
			}
		}
	}
	return paths
}

func steps(path []string) (steps []any) {
	for _, step := range path {
		steps = append(steps, step)
	}
	return steps
}

// set sets what is at a path, and makes the objects above it.
func set(in map[string]any, path []string, value any) {
	for _, step := range path[:len(path)-1] {
		if _, ok := in[step].(map[string]any); !ok {
			in[step] = map[string]any{}
		}
		in = in[step].(map[string]any)
	}
	in[path[len(path)-1]] = value
}

func isEmpty(value any) bool {
	switch value := value.(type) {
	case string:
		return value == ""
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return false
}

func decode(t *testing.T, text string) (object map[string]any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func format(t *testing.T, values map[string]any) string {
	t.Helper()
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
