package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	// namePrefix is what config/default puts before names.
	namePrefix = "slipway-"
	header     = "{{/* Written by make generate. Change %s instead. */}}\n"
)

// object is a manifest of config.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Rules any `json:"rules,omitempty"`
	Spec  any `json:"spec,omitempty"`
}

// read returns the objects of a file of config.
func read(root, file string) ([]object, error) {
	content, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	var objects []object
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var o object
		if err := yaml.UnmarshalStrict([]byte(document), &o); err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		if o.Kind == "" {
			return nil, fmt.Errorf("parse %s: a document has no kind", file)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// escaped is text that Helm prints as it stands.
func escaped(text string) string {
	return strings.NewReplacer("{{", `{{ "{{" }}`, "}}", `{{ "}}" }}`).Replace(text)
}

// options say which parts of an object a value switches.
type options struct {
	annotation string            // a line of the template for an annotation
	labels     map[string]string // conditions of labels, by their name
	namespaced bool
}

// writeObject writes an object as a template: the chart's labels and annotations, the rest as it is in config.
func writeObject(out *bytes.Buffer, o object, name string, with options) error {
	fmt.Fprintf(out, "apiVersion: %s\nkind: %s\nmetadata:\n  name: %s\n", o.APIVersion, o.Kind, name)
	if with.namespaced {
		out.WriteString("  namespace: {{ include \"slipway.leaseNamespace\" . | quote }}\n") // the only Role is about the lease
	}
	out.WriteString("  labels:\n    {{- include \"slipway.labels\" (dict \"root\" .) | nindent 4 }}\n")
	for _, label := range slices.Sorted(maps.Keys(o.Metadata.Labels)) {
		line := fmt.Sprintf("    %s: %q\n", label, escaped(o.Metadata.Labels[label]))
		if condition, ok := with.labels[label]; ok {
			line = fmt.Sprintf("    {{- if %s }}\n%s    {{- end }}\n", condition, line)
		}
		out.WriteString(line)
	}
	var own strings.Builder
	for _, annotation := range slices.Sorted(maps.Keys(o.Metadata.Annotations)) {
		fmt.Fprintf(&own, " %q %q", annotation, o.Metadata.Annotations[annotation])
	}
	fmt.Fprintf(out, "  {{- $annotations := dict%s }}\n%s", own.String(), with.annotation)
	out.WriteString("  {{- with include \"slipway.annotations\" (dict \"root\" . \"annotations\" $annotations) }}\n  {{- . | nindent 2 }}\n  {{- end }}\n")
	for _, part := range []struct {
		name string
		of   any
	}{{"rules", o.Rules}, {"spec", o.Spec}} {
		if part.of == nil {
			continue
		}
		content, err := yaml.Marshal(map[string]any{part.name: part.of})
		if err != nil {
			return fmt.Errorf("print %s of %s %s: %w", part.name, o.Kind, name, err)
		}
		out.WriteString(escaped(string(content)))
	}
	return nil
}

func renderCRD(root string) ([]byte, error) {
	const source = "config/crd/bases/mcp.slipway.dev_mcpservers.yaml"
	objects, err := read(root, source)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, header+"{{- if .Values.crds.enabled }}\n", "config/crd")
	for _, o := range objects {
		err := writeObject(&out, o, o.Metadata.Name, options{
			annotation: "  {{- if .Values.crds.keep }}{{- $_ := set $annotations \"helm.sh/resource-policy\" \"keep\" }}{{- end }}\n",
		})
		if err != nil {
			return nil, err
		}
	}
	out.WriteString("{{- end }}\n")
	return out.Bytes(), nil
}

func renderManagerRole(root string) ([]byte, error) {
	return renderRoles(root, "the markers in the code", "config/rbac/role.yaml")
}

func renderUserRoles(root string) ([]byte, error) {
	return renderRoles(root, "config/rbac",
		"config/rbac/mcpserver_admin_role.yaml", "config/rbac/mcpserver_editor_role.yaml", "config/rbac/mcpserver_viewer_role.yaml",
		"config/rbac/metrics_reader_role.yaml")
}

func renderRoles(root, change string, sources ...string) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, header+"{{- if .Values.rbac.create }}\n", change)
	for _, source := range sources {
		objects, err := read(root, source)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			with := options{labels: map[string]string{}, namespaced: o.Kind == "Role"}
			for label := range o.Metadata.Labels {
				if strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-") {
					with.labels[label] = ".Values.rbac.aggregateToDefaultRoles"
				}
			}
			out.WriteString("---\n")
			if err := writeObject(&out, o, namePrefix+o.Metadata.Name, with); err != nil {
				return nil, err
			}
		}
	}
	out.WriteString("{{- end }}\n")
	return out.Bytes(), nil
}

// renderAlerts returns a rule file of Prometheus: comments and order stay as they are.
func renderAlerts(root string) ([]byte, error) {
	const source = "config/prometheus/alerts.yaml"
	if _, err := read(root, source); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(filepath.Join(root, source))
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	_, spec, found := strings.Cut(string(content), "\nspec:\n")
	if !found {
		return nil, fmt.Errorf("%s has no spec", source)
	}
	var out bytes.Buffer
	out.WriteString("# Written by make generate. Change " + source + " instead.\n")
	for line := range strings.Lines(spec) {
		out.WriteString(strings.TrimPrefix(line, "  "))
	}
	return out.Bytes(), nil
}
