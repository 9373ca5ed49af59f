package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-mcp/slipway/internal/config"
)

const root = "../.."

// The schema has the values that the manager takes, and no others: its message about a wrong one lists them.
func TestChoicesAreTheManagers(t *testing.T) {
	checked := map[reflect.Type]bool{}
	var visit func(path []string, of reflect.Type)
	visit = func(path []string, of reflect.Type) {
		switch {
		case of == reflect.TypeFor[metav1.LabelSelector](), of == reflect.TypeFor[corev1.ResourceRequirements]():
			return // Kubernetes' own
		case of.Kind() == reflect.Struct:
			for field := range fieldsOf(of) {
				name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
				visit(append(slices.Clone(path), name), field.Type)
			}
		case of.Kind() == reflect.String && of.PkgPath() != "":
			checked[of] = true
			values, ok := choices[of]
			if !ok {
				t.Errorf("%s: the schema takes any value: add %s to choices", strings.Join(path, "."), of)
				return
			}
			want := fmt.Sprintf("%s must be %s, not %q", strings.Join(path, "."), strings.Join(values, " or "), "wrong")
			if message := fmt.Sprint(decode(t, path, "wrong")); !strings.Contains(message, want) {
				t.Errorf("the manager says %q, want %q", message, want)
			}
		}
	}
	visit(nil, reflect.TypeFor[config.Manager]())
	if len(checked) < 8 {
		t.Errorf("only %d types were found", len(checked))
	}
}

// decode reads a configuration with a value at a path.
func decode(t *testing.T, path []string, value string) error {
	t.Helper()
	var content any = value
	for _, name := range slices.Backward(path) {
		content = map[string]any{name: content}
	}
	file := content.(map[string]any)
	file["apiVersion"], file["kind"] = config.GroupVersion.String(), config.Kind
	text, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = config.Decode(text)
	if err == nil {
		t.Errorf("the manager takes %s", text)
	}
	return err
}

// make verify finds a file that was not generated. This test says so at once, and finds a source that cannot be rendered.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	dir := t.TempDir()
	for _, source := range []string{"config", chart} {
		if err := os.CopyFS(filepath.Join(dir, source), os.DirFS(filepath.Join(root, source))); err != nil {
			t.Fatal(err)
		}
	}
	if err := generate(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"templates/crd.yaml", "templates/managerrole.yaml", "templates/userroles.yaml", "files/alerts.yaml", "values.schema.json", "README.md"} {
		want, err := os.ReadFile(filepath.Join(dir, chart, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, chart, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what its source says, %v: run make generate", name, err)
		}
	}
}

// A value without a description has no row, so it is an error.
func TestEveryValueHasADescription(t *testing.T) {
	for name, test := range map[string]struct{ values, want, problem string }{
		"described":       {"# -- What it is.\nkey: [1]\n", "| `key` | `[1]` | What it is. |\n", ""},
		"described below": {"key:\n  # -- What it is.\n  of: \"\"\n", "| `key.of` | `\"\"` | What it is. |\n", ""},
		"not described":   {"# What it is.\nkey: 1\n", "", "key has no comment"},
		"an empty object": {"key: {}\n", "", "key has no comment"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, chart), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, chart, "values.yaml"), []byte(test.values), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := renderReadme(dir)
			if test.problem != "" {
				if err == nil || !strings.Contains(err.Error(), test.problem) {
					t.Errorf("got %v, want %s", err, test.problem)
				}
				return
			}
			if err != nil || !strings.HasSuffix(string(got), test.want) {
				t.Errorf("%v\n%s", err, got)
			}
		})
	}
}

// Text that looks like a template stays text.
func TestTemplatesInSourcesAreEscaped(t *testing.T) {
	if got, want := escaped("a {{ .b }} c"), `a {{ "{{" }} .b {{ "}}" }} c`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The schema that is committed is JSON Schema for an object that takes no unknown values.
func TestSchemaIsStrict(t *testing.T) {
	content, err := renderSchema(root)
	if err != nil {
		t.Fatal(err)
	}
	var schema any
	if err := json.Unmarshal(content, &schema); err != nil {
		t.Fatal(err)
	}
	var visit func(path string, of any)
	visit = func(path string, of any) {
		fields, _ := of.(map[string]any)
		properties, _ := fields["properties"].(map[string]any)
		if properties != nil && fields["additionalProperties"] != false {
			t.Errorf("%s takes unknown fields", path)
		}
		for name, property := range properties {
			visit(path+"."+name, property)
		}
	}
	visit("values", schema)
}
