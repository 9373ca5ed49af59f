package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.dev}
spec:
  group: example.dev
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - {name: v1, subresources: {status: {}}}
`

func TestRolesFollowTheSubresources(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "widgets.yaml"), []byte(widgets), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := generate(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := header + `# Lets people see Widgets. Added to the cluster's role view.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  labels:
    rbac.authorization.k8s.io/aggregate-to-view: "true"
  name: widget-viewer-role
rules:
- apiGroups:
  - example.dev
  resources:
  - widgets
  verbs:
  - get
  - list
  - watch
- apiGroups:
  - example.dev
  resources:
  - widgets/status
  verbs:
  - get
`
	if diff := cmp.Diff(want, string(files["widget_viewer_role.yaml"])); diff != "" {
		t.Errorf("viewer role (-want +got):\n%s", diff)
	}
	if len(files) != len(levels) {
		t.Errorf("generate made %d files, want one for each of %d levels", len(files), len(levels))
	}
}

func TestRolesInTheTreeAreCurrent(t *testing.T) {
	files, err := generate("../../config/crd/bases")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("../../config/rbac", name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is not what hack/userroles writes; run make generate (-want +got):\n%s", name, diff)
		}
	}
}

func TestGenerateRefuses(t *testing.T) {
	tests := map[string]struct{ file, content, want string }{
		"an empty directory": {"readme.txt", "", "no *.yaml"},
		"another kind":       {"pod.yaml", "kind: Pod\n", "not a CustomResourceDefinition"},
		"broken YAML":        {"crd.yaml", "{", "crd.yaml"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, test.file), []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := generate(dir); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("generate: %v, want an error with %q", err, test.want)
			}
		})
	}
}
