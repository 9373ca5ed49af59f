package chart

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// The chart and install.yaml install the same. What may differ is what this test takes away, and nothing else.
func TestChartEqualsConfigDefault(t *testing.T) {
	want, got := kustomize(t, "config/default"), render(t, "")
	takeNamespaceAway(t, want)
	for _, objects := range []map[string]object{want, got} {
		normalize(t, objects)
	}
	for _, o := range got { // config/default has no version; the test below is about it
		drop(o, "metadata", "labels", "app.kubernetes.io/version")
		if at(o, "kind") == "Deployment" {
			drop(o, "spec", "template", "metadata", "labels", "app.kubernetes.io/version")
		}
	}
	compare(t, "config/default", want, got)
}

// With a version and a place of the images the same holds for the file that hack/installer.sh writes. Here images and
// labels are compared, too.
func TestChartEqualsInstaller(t *testing.T) {
	file := filepath.Join(t.TempDir(), "install.yaml")
	run(t, "hack/installer.sh", "registry.example/team", "v1.2.3", file)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]object{}
	add(t, want, file, string(content))
	got := render(t, "image: {prefix: registry.example/team, tag: v1.2.3}")
	takeNamespaceAway(t, want)
	normalize(t, want)
	normalize(t, got)
	compare(t, "install.yaml", want, got)
}

// The monitors and alerts of the chart are those of config/prometheus.
func TestMonitorsEqualConfigPrometheus(t *testing.T) {
	want := kustomize(t, "config/prometheus")
	got := render(t, "metrics: {serviceMonitor: {enabled: true}, podMonitor: {enabled: true}, prometheusRule: {enabled: true}}")
	maps.DeleteFunc(got, func(_ string, o object) bool { return at(o, "apiVersion") != "monitoring.coreos.com/v1" })
	if len(got) != 3 {
		t.Errorf("%d objects, want 3", len(got))
	}
	for _, o := range got {
		drop(o, "metadata", "labels", "app.kubernetes.io/version")
	}
	normalize(t, want)
	normalize(t, got)
	compare(t, "config/prometheus", want, got)
}

// compare compares object by object, so that a failure shows no more than what differs.
func compare(t *testing.T, source string, want, got map[string]object) {
	t.Helper()
	for key := range got {
		if want[key] == nil {
			t.Errorf("%s has no %s, which is in the chart", source, key)
		}
	}
	for key := range want {
		if got[key] == nil {
			t.Errorf("the chart has no %s, which is in %s", key, source)
		} else if diff := cmp.Diff(want[key], got[key]); diff != "" {
			t.Errorf("%s differs (-%s +chart):\n%s", key, source, diff)
		}
	}
}

// helm install writes its release into the namespace before it applies anything, so a chart cannot create it.
func takeNamespaceAway(t *testing.T, objects map[string]object) {
	t.Helper()
	if objects["Namespace/"+namespace] == nil {
		t.Errorf("config/default has no Namespace %s", namespace)
	}
	delete(objects, "Namespace/"+namespace)
}

var hashed = regexp.MustCompile(`^slipway-manager-config-[0-9a-z]{10}$`)

// normalize takes away how Helm and kustomize differ by nature: labels and annotations of Helm, and whether the hash of
// the configuration is in the name of the ConfigMap or in an annotation of the pod.
func normalize(t *testing.T, objects map[string]object) {
	t.Helper()
	for key, o := range maps.Clone(objects) {
		drop(o, "metadata", "labels", "helm.sh/chart")
		drop(o, "metadata", "labels", "app.kubernetes.io/managed-by")
		drop(o, "metadata", "annotations", "helm.sh/resource-policy")
		switch at(o, "kind") {
		case "ConfigMap":
			name := text(at(o, "metadata", "name"))
			if hashed.MatchString(name) {
				name = "slipway-manager-config"
			}
			o["metadata"].(map[string]any)["name"] = name
			delete(objects, key)
			objects[keyOf(o)] = o
			// Comments of the file say what the defaults are. What counts is what the manager reads.
			var file any
			if err := yaml.UnmarshalStrict([]byte(text(at(o, "data", "config.yaml"))), &file); err != nil {
				t.Fatalf("parse configuration: %v", err)
			}
			o["data"].(map[string]any)["config.yaml"] = file
		case "Deployment":
			drop(o, "spec", "template", "metadata", "annotations", "checksum/config")
			volume := at(o, "spec", "template", "spec", "volumes", 0, "configMap").(map[string]any)
			if hashed.MatchString(text(volume["name"])) {
				volume["name"] = "slipway-manager-config"
			}
		}
	}
}

// drop removes a field.
func drop(o any, steps ...string) {
	for _, step := range steps[:len(steps)-1] {
		o = at(o, step)
	}
	if fields, ok := o.(map[string]any); ok {
		delete(fields, steps[len(steps)-1])
	}
}

// Helm stores the chart and the manifests in one Secret, of at most 1 MiB.
func TestChartFitsIntoARelease(t *testing.T) {
	var size int
	for _, file := range load(t).Raw {
		size += len(file.Data)
	}
	for _, o := range render(t, "") {
		content, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		size += len(content)
	}
	const compresses = 6 // YAML of a CRD: ten times and more
	if size/compresses > 700_000 {
		t.Errorf("chart and manifests have %d bytes", size)
	}
	if !strings.Contains(load(t).Metadata.KubeVersion, "1.34") {
		t.Error("the chart does not say which Kubernetes it needs")
	}
}
