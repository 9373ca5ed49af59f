package report

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/manifest"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// planter puts a marker of its own into every field of a type that holds what must not be shared.
type planter struct {
	markers []string
	depth   int
}

func (p *planter) marker() string {
	p.markers = append(p.markers, fmt.Sprintf("planted-%03d-marker", len(p.markers)))
	return p.markers[len(p.markers)-1]
}

// plant fills a value: lists and pointers get one item, so that no field is out of reach.
func (p *planter) plant(value reflect.Value) {
	const deepest = 24
	if p.depth++; p.depth > deepest {
		p.depth--
		return
	}
	defer func() { p.depth-- }()
	switch value.Kind() {
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		p.plant(value.Elem())
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		p.plant(value.Index(0))
	case reflect.Struct:
		p.plantFields(value)
	default:
	}
}

func (p *planter) plantFields(value reflect.Value) {
	switch value.Type() {
	case reflect.TypeFor[corev1.EnvVar](), reflect.TypeFor[corev1.HTTPHeader]():
		value.FieldByName("Name").SetString("NAME")
		value.FieldByName("Value").SetString(p.marker())
		return
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.ObjectMeta]():
		return
	}
	for i := range value.NumField() {
		field, name := value.Field(i), value.Type().Field(i).Name
		switch {
		case !field.CanSet():
		case (name == "Command" || name == "Args") && field.Type() == reflect.TypeFor[[]string]():
			field.Set(reflect.ValueOf([]string{p.marker(), "--flag=" + p.marker()}))
		case name == "VolumeAttributes":
			field.Set(reflect.ValueOf(map[string]string{"key": p.marker()}))
		default:
			p.plant(field)
		}
	}
}

// asObject is an object as an API server sends it.
func asObject(t *testing.T, value any, kind string) object {
	t.Helper()
	made, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
	if err != nil {
		t.Fatal(err)
	}
	made["kind"] = kind
	return made
}

// Whatever field of whatever object holds a variable, a command, an argument or a header: its value is removed. The
// test finds these fields by the types of Kubernetes and of Slipway, so a new one cannot be forgotten.
func TestRedactFields(t *testing.T) {
	objects := map[string]any{
		"MCPServer": &mcpv1alpha1.MCPServer{}, "Deployment": &appsv1.Deployment{}, "ReplicaSet": &appsv1.ReplicaSet{}, "Pod": &corev1.Pod{},
	}
	for kind, value := range objects {
		t.Run(kind, func(t *testing.T) {
			p := &planter{}
			p.plant(reflect.ValueOf(value).Elem())
			if len(p.markers) < 4 {
				t.Fatalf("planted only %v", p.markers)
			}
			mustNotStay(t, redacted(t, asObject(t, value, kind)), p.markers)
		})
	}
	t.Run("ControllerRevision", func(t *testing.T) {
		p := &planter{}
		template := &corev1.PodTemplateSpec{}
		p.plant(reflect.ValueOf(template).Elem())
		encoded, err := json.Marshal(template)
		if err != nil {
			t.Fatal(err)
		}
		content, err := json.Marshal(workload.Rendered{Template: encoded})
		if err != nil {
			t.Fatal(err)
		}
		mustNotStay(t, redacted(t, asObject(t, &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: content}}, "ControllerRevision")), p.markers)
	})
}

// redacted is an object as a report has it.
func redacted(t *testing.T, found object) string {
	t.Helper()
	values := NewValues()
	values.Learn(found)
	encoded, err := manifest.YAML(values.Redact(found))
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

// mustNotStay fails if a text has one of some values, or what base64 and JSON make of it.
func mustNotStay(t *testing.T, text string, values []string) {
	t.Helper()
	for _, value := range values {
		for _, form := range []string{value, base64.StdEncoding.EncodeToString([]byte(value)), encodeJSON(value, true), inner(encodeJSON(value, false))} {
			if strings.Contains(text, form) {
				t.Errorf("%q stays in\n%s", form, text)
			}
		}
	}
}

// What is not secret stays as it is, and so do the names of everything.
func TestRedact(t *testing.T) {
	found := object{}
	if err := yaml.Unmarshal([]byte(`
apiVersion: mcp.slipway.dev/v1alpha1
kind: MCPServer
metadata:
  name: tickets
  namespace: support
  labels: {team: tickets, url: x-value-of-url}
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"args":["abc"]}}'
    tool.example/original: '{"kind":"Secret","data":{"a":"YWJjZA=="},"spec":{"env":[{"name":"A","value":"abc"}],"port":80}}'
    note: was value-of-url
  managedFields: [{manager: kubectl}]
spec:
  image: registry.example/tickets
  command: [node]
  args: ["--port", "8080"]
  env:
  - {name: URL, value: value-of-url}
  - {name: TOKEN, valueFrom: {secretKeyRef: {name: tickets, key: token}}}
  - {name: SAME, value: tickets}
  transport: {type: streamable-http, streamableHTTP: {port: 8080}}
status:
  conditions:
  - {type: Ready, reason: ServerExits, message: 'standard error: "no value-of-url"'}
`), &found); err != nil {
		t.Fatal(err)
	}
	const want = `apiVersion: mcp.slipway.dev/v1alpha1
kind: MCPServer
metadata:
  annotations:
    note: was <removed, 12 bytes>
    tool.example/original: '{"data":{"a":"\u003cremoved, 4 bytes\u003e"},"kind":"Secret","metadata":{}}'
  labels:
    team: <removed, 7 bytes>
    url: x-<removed, 12 bytes>
  name: tickets
  namespace: support
spec:
  args:
  - <removed, 6 bytes>
  - <removed, 4 bytes>
  command:
  - <removed, 4 bytes>
  env:
  - name: URL
    value: <removed, 12 bytes>
  - name: TOKEN
    valueFrom:
      secretKeyRef:
        key: token
        name: <removed, 7 bytes>
  - name: SAME
    value: <removed, 7 bytes>
  image: registry.example/<removed, 7 bytes>
  transport:
    streamableHTTP:
      port: 8080
    type: streamable-http
status:
  conditions:
  - message: 'standard error: "no <removed, 12 bytes>"'
    reason: ServerExits
    type: Ready
`
	if diff := cmp.Diff(want, redacted(t, found)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Of a Secret there are the names and sizes of keys, whatever else holds its values.
func TestRedactSecret(t *testing.T) {
	found := asObject(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "tickets", Annotations: map[string]string{"tool.example/copy": "abc", corev1.LastAppliedConfigAnnotation: "{}"}},
		Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{"token": []byte("abcdef"), "empty": {}}, StringData: map[string]string{"plain": "abc"},
	}, "Secret")
	const want = `data:
  empty: <removed, 0 bytes>
  token: <removed, 6 bytes>
kind: Secret
metadata:
  annotations:
    tool.example/copy: <removed, 3 bytes>
  name: tickets
stringData:
  plain: <removed, 3 bytes>
type: Opaque
`
	if diff := cmp.Diff(want, redacted(t, found)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	values := NewValues()
	values.Learn(found)
	if got := values.Remove("token abcdef"); got != "token <removed, 6 bytes>" {
		t.Errorf("a log has %q", got)
	}
}

// The kubelet copies the end of a log into the status. It may begin within a value.
func TestRedactLastOutput(t *testing.T) {
	long := "rest-of-a-value\n" + strings.Repeat("x", lastOutput)
	for message, want := range map[string]string{long: strings.Repeat("x", lastOutput), "a line\nanother": "a line\nanother", strings.Repeat("y", lastOutput): ""} {
		got := NewValues().Redact(object{"terminated": object{"exitCode": int64(1), "message": message}})
		if message := got["terminated"].(object)["message"]; message != want {
			t.Errorf("got %q, want %q", message, want)
		}
	}
}

// Programs write messages, and other tools write keys, that readers of YAML do not take as they stand.
func TestEncodeYAML(t *testing.T) {
	want := object{
		"message":                 "del \x7f next \u0085 \u009b \ufeff \uffff tab\tö 🙂 \U000e0001",
		strings.Repeat("k", 2000): "long key",
		"\u009b":                  "control character",
		"numbers":                 []any{float64(9007199254740993), 1.5, 1e300},
		"words":                   []any{"yes", "1", "null", "~", "2026-11-18", "0x1f", "a: b", "# c"},
	}
	encoded, err := manifest.YAML(want)
	if err != nil {
		t.Fatal(err)
	}
	var got object
	if err := yaml.Unmarshal(encoded, &got); err != nil {
		t.Fatalf("%v in %q", err, encoded)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Objects of any shape are read, and variables never stay.
func FuzzRedact(f *testing.F) {
	f.Add(`{"kind":"Secret","data":{"a":1},"metadata":[]}`)
	f.Add(`{"metadata":{"annotations":{"a":"[{\"env\":{\"A\":\"b\"}}]"},"ownerReferences":"x"},"env":"x","command":{"a":[1,null]}}`)
	f.Add("{\"\x7f\":{}}")
	f.Add(`{"` + strings.Repeat("k", 2000) + `":{}}`)
	f.Add(`{"spec":{"env":[1,"x",{"name":"A","value":{"b":"c"}}],"options":{"a":"b"}},"involvedObject":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		var found object
		if json.Unmarshal([]byte(text), &found) != nil || strings.Contains(text, "planted") {
			t.Skip("no object")
		}
		const planted = "planted-marker"
		found = object{"a": found, "env": []any{object{"name": "A", "value": planted}}, "message": "it is " + planted}
		if kept := redacted(t, found); strings.Contains(kept, planted) {
			t.Errorf("stays in %s", kept)
		}
		redacted(t, found["a"].(object))
	})
}
