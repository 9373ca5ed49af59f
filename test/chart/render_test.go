package chart

import (
	"bytes"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const (
	repository = "../.."
	namespace  = "slipway-system"
)

// object is a manifest.
type object = map[string]any

// load reads the chart as helm install does.
func load(t *testing.T) *chartv2.Chart {
	t.Helper()
	slipway, err := loader.Load(filepath.Join(repository, "charts", "slipway"))
	if err != nil {
		t.Fatalf("load chart: %v", err)
	}
	return slipway
}

// tryRender renders the chart with values, as YAML, and returns what helm install would print or apply.
func tryRender(t *testing.T, values string) (objects map[string]object, notes string, err error) {
	t.Helper()
	return tryRenderIn(t, namespace, values)
}

func tryRenderIn(t *testing.T, namespace, values string) (objects map[string]object, notes string, err error) {
	t.Helper()
	slipway := load(t)
	var own map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &own); err != nil {
		t.Fatalf("parse values: %v", err)
	}
	top, err := util.ToRenderValues(slipway, own, common.ReleaseOptions{Name: "any", Namespace: namespace, IsInstall: true, Revision: 1}, nil)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Engine{Strict: true}.Render(slipway, top)
	if err != nil {
		return nil, "", err
	}
	objects = map[string]object{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch path.Ext(name) {
		case ".txt":
			notes = files[name]
		case ".yaml":
			add(t, objects, name, files[name])
		}
	}
	return objects, notes, nil
}

func render(t *testing.T, values string) map[string]object {
	t.Helper()
	objects, _, err := tryRender(t, values)
	if err != nil {
		t.Fatalf("render chart: %v", err)
	}
	return objects
}

// add adds the objects of a file by kind, namespace and name. Fields that are there twice are an error, as they are for the API server.
func add(t *testing.T, objects map[string]object, name, content string) {
	t.Helper()
	for document := range strings.SplitSeq("\n"+content, "\n---\n") {
		o, err := parse(document)
		if err != nil {
			t.Fatalf("parse %s: %v\n%s", name, err, document)
		}
		if len(o) == 0 {
			continue
		}
		key := keyOf(o)
		if objects[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		objects[key] = o
	}
}

// parsed are documents of before, by their text: the CRD takes half a second, and nearly every test has the same.
var parsed = map[string]object{}

func parse(document string) (object, error) {
	if parsed[document] == nil {
		var o object
		if err := yaml.UnmarshalStrict([]byte(document), &o); err != nil {
			return nil, err
		}
		parsed[document] = o
	}
	return runtime.DeepCopyJSON(parsed[document]), nil
}

func keyOf(o object) string {
	metadata := o["metadata"].(map[string]any)
	parts := []string{text(o["kind"]), text(metadata["namespace"]), text(metadata["name"])}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "/")
}

func text(value any) string {
	content, _ := value.(string)
	return content
}

// at returns what is at a path of fields and of indexes; nil if nothing is.
func at(in any, steps ...any) any {
	for _, step := range steps {
		switch step := step.(type) {
		case string:
			fields, _ := in.(map[string]any)
			in = fields[step]
		case int:
			list, _ := in.([]any)
			if step >= len(list) {
				return nil
			}
			in = list[step]
		}
	}
	return in
}

// run runs a program in the root of the checkout and returns its standard output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = repository
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return stdout.String()
}

func kustomize(t *testing.T, directory string) map[string]object {
	t.Helper()
	objects := map[string]object{}
	add(t, objects, directory, run(t, "go", "tool", "-modfile=hack/tools/go.mod", "kustomize", "build", directory))
	return objects
}
