package workload

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// What decides whether pods are restarted is pinned: if it changes, then every pod in the
// world is restarted by an upgrade of the manager. Update the file only for new cases. If
// a field of the API is renamed, add a step to history and leave the files of older formats
// as they are.
func TestInputsArePinned(t *testing.T) {
	all := map[string]Inputs{}
	for _, name := range cases(t) {
		in := readStored(t, name)
		if name == "suspended" {
			in.Server.Annotations = map[string]string{mcpv1alpha1.AnnotationRefresh: "2026-11-15"}
		}
		all[name] = InputsOf(in.Server, in.References)
	}
	all["minimal, stored without a drainTimeout"] = InputsOf(readInput(t, "minimal").Server, "")
	golden(t, filepath.Join("testdata", fmt.Sprintf("inputs-%d.yaml", history.current())), all, nil)
}

// readStored is readInput for an object that was stored while the schema had a default for
// session.drainTimeout, as it had until 2026-11-18: the object has that value.
func readStored(t *testing.T, name string) Input {
	t.Helper()
	in := readInput(t, name)
	if session := &in.Server.Spec.Session; session.DrainTimeout == nil {
		session.DrainTimeout = &metav1.Duration{Duration: time.Minute}
	}
	return in
}

// A ControllerRevision of the first format, as an API server returned it, with its members
// in the API server's order. It must always match the spec that it was rendered from. No
// test writes this file.
func TestRevisionOfFormat1(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "revision-format-1.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rendered Rendered
	if err := json.Unmarshal(text, &rendered); err != nil {
		t.Fatal(err)
	}
	server := readInput(t, "everything").Server
	if rendered.Inputs.Format != 1 || rendered.Inputs.IsNewer() || !rendered.Inputs.MatchSpec(server) {
		t.Errorf("a template of format 1 would be rendered again: %s", cmp.Diff(string(rendered.Inputs.Content), string(InputsOf(server, "").Content)))
	}
	rendered.Inputs.Hash = "" // the content alone says it, too
	if !rendered.Inputs.MatchSpec(server) {
		t.Error("it matches by its hash only")
	}
	server.Spec.Env[0].Value += "/"
	if rendered.Inputs.MatchSpec(server) {
		t.Error("it matches another spec")
	}
	if rendered.AdapterVersion == "" || rendered.ImageName == "" || rendered.Image == nil || rendered.Inputs.References == "" || len(rendered.Template) == 0 {
		t.Errorf("a member has another name now: %+v", rendered)
	}
}

// A rename in the API restarts nothing: inputs of an older format are translated and compared by
// meaning. inputs-1.yaml is what the manager before the rename wrote for the same specs.
func TestInputsOfFormat1(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "inputs-1.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]Inputs{}
	if err := yaml.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	for name, before := range stored {
		t.Run(name, func(t *testing.T) {
			server := readStored(t, name).Server
			if name == "suspended" {
				server.Annotations = map[string]string{mcpv1alpha1.AnnotationRefresh: "2026-11-15"}
			}
			now := InputsOf(server, before.References)
			if !before.MatchSpec(server) {
				translated, err := history.translate(before)
				t.Errorf("the pods would restart: %v\n%s", err, cmp.Diff(string(now.Content), string(translated)))
			}
			usesRenamed := server.Spec.Transport.Type == mcpv1alpha1.TransportStreamableHTTP || server.Spec.Transport.Sessions != "" ||
				server.Spec.Transport.Stdio != nil || server.Spec.Adapter.Limits != nil
			if !usesRenamed && now.Hash != before.Hash {
				t.Errorf("a spec that uses nothing of what was renamed has another hash: %s", now.Content)
			}
			server.Spec.Image += "0"
			if before.MatchSpec(server) {
				t.Error("it matches another spec")
			}
		})
	}
	if len(stored) < 10 {
		t.Errorf("the file has %d cases", len(stored))
	}
}

// Each renamed field still decides whether pods restart.
func TestRenamedFieldsOfFormat1(t *testing.T) {
	for name, test := range map[string]struct {
		server string
		change func(spec *mcpv1alpha1.MCPServerSpec)
	}{
		"the port":     {"streamable-http", func(s *mcpv1alpha1.MCPServerSpec) { s.Transport.StreamableHTTP.Port++ }},
		"the sessions": {"modern", func(s *mcpv1alpha1.MCPServerSpec) { s.Transport.Sessions = "" }},
		"body":         {"everything", func(s *mcpv1alpha1.MCPServerSpec) { s.Adapter.Limits.Body = nil }},
		"line":         {"everything", func(s *mcpv1alpha1.MCPServerSpec) { s.Adapter.Limits.Line.Add(resource.MustParse("1")) }},
		"replay":       {"everything", func(s *mcpv1alpha1.MCPServerSpec) { s.Adapter.Limits.Replay = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", "inputs-1.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			stored := map[string]Inputs{}
			if err := yaml.Unmarshal(text, &stored); err != nil {
				t.Fatal(err)
			}
			server := readStored(t, test.server).Server
			test.change(&server.Spec)
			if stored[test.server].MatchSpec(server) {
				t.Error("the pods would not restart")
			}
		})
	}
}

// Two spellings of the same size are the same.
func TestSizesOfInputs(t *testing.T) {
	server := readInput(t, "everything").Server
	before := InputsOf(server, "")
	server.Spec.Adapter.Limits.Body = new(resource.MustParse("1048576"))
	if !before.MatchSpec(server) {
		t.Errorf("%s after %s", InputsOf(server, "").Content, before.Content)
	}
}

// Neither the order of members nor white space nor a null means anything.
func TestInputsInAnotherSpelling(t *testing.T) {
	now := Inputs{Format: 2, Content: []byte(`{"refresh":"1","spec":{"args":["b","a"],"image":"x","n":9007199254740993}}`), Hash: "now"}
	for spelling, want := range map[string]bool{
		`{ "spec": {"n":9007199254740993, "image":"x","command":null, "args":["b","a"]}, "refresh":"1" }`: true,
		`{"refresh":"1","spec":{"args":["a","b"],"image":"x","n":9007199254740993}}`:                      false,
		`{"refresh":"1","spec":{"args":["b","a"],"image":"x","n":9007199254740992}}`:                      false,
		`{"spec":{"args":["b","a"],"image":"x","n":9007199254740993}}`:                                    false,
		`"a text"`: false,
		``:         false,
	} {
		if got := (Inputs{Format: 2, Content: []byte(spelling), Hash: "stored"}).means(now, history); got != want {
			t.Errorf("%s: the same: %t", spelling, got)
		}
	}
}

// Inputs of a format that is not known are not taken for the same, nor is what was written
// before there were formats.
func TestInputsOfAnUnknownFormat(t *testing.T) {
	server := readInput(t, "minimal").Server
	for format, isNewer := range map[int]bool{0: false, 2: false, 3: true, 99: true} {
		inputs := InputsOf(server, "")
		inputs.Format = format
		if inputs.IsNewer() != isNewer || inputs.MatchSpec(server) != (format == 2) {
			t.Errorf("format %d: newer %t, matches %t", format, inputs.IsNewer(), inputs.MatchSpec(server))
		}
	}
}

func TestCanonical(t *testing.T) {
	got, err := canonical(struct {
		B *int           `json:"b"`
		A []any          `json:"a"`
		N int64          `json:"n"`
		E map[string]any `json:"e"`
	}{nil, []any{map[string]any{"z": nil, "y": 1}}, 1<<62 + 1, map[string]any{}})
	if want := `{"a":[{"y":1}],"e":{},"n":4611686018427387905}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

// A field that is left out has no place in the inputs, so that one can be added.
func TestZeroSpecIsEmpty(t *testing.T) {
	for name, object := range map[string]any{
		"spec": mcpv1alpha1.MCPServerSpec{}, "session": mcpv1alpha1.Session{}, "adapter": mcpv1alpha1.Adapter{},
		"limits": mcpv1alpha1.AdapterLimits{}, "podTemplate": mcpv1alpha1.PodTemplate{}, "podTemplate.metadata": mcpv1alpha1.PodMetadata{},
		"transport": mcpv1alpha1.Transport{}, "stdio": mcpv1alpha1.StdioTransport{}, "streamableHTTP": mcpv1alpha1.StreamableHTTPTransport{}, "rollout": mcpv1alpha1.Rollout{}, "verification": mcpv1alpha1.Verification{}, "service": mcpv1alpha1.Service{}, "sse": mcpv1alpha1.SSETransport{},
	} {
		encoded, err := json.Marshal(object)
		if err != nil || string(encoded) != "{}" {
			t.Errorf("%s that says nothing is %s, %v: a field lacks omitempty", name, encoded, err)
		}
	}
}

// The API server fills defaults in. One that is added later would change the inputs of
// every spec that stays the same: podSpec must remove it where it is the default. Those of
// the first version are part of the inputs. Kubernetes' own are in this list, too: a newer
// version of its types may bring more.
func TestSchemaDefaultsAreKnown(t *testing.T) {
	want := []string{
		`auth.mode: "Required"`, // auth is not in the content
		`envFrom[].configMapRef.name: ""`,
		`envFrom[].secretRef.name: ""`,
		`env[].valueFrom.configMapKeyRef.name: ""`,
		"env[].valueFrom.fileKeyRef.optional: false",
		`env[].valueFrom.secretKeyRef.name: ""`,
		`imagePullSecrets[].name: ""`,
		"replicas: 1",
		`session.callTimeout: "10m"`,
		`session.idleTimeout: "30m"`,
		`session.maxLifetime: "24h"`,
		"session.maxPerPod: 20",
		"session: {}",
		`transport.sse.path: "/sse"`,
		`transport.stdio.framing: "Newline"`,
		`transport.streamableHTTP.path: "/mcp"`,
		`volumes[].configMap.name: ""`,
		`volumes[].csi.nodePublishSecretRef.name: ""`,
		`volumes[].iscsi.iscsiInterface: "default"`,
		`volumes[].iscsi.secretRef.name: ""`,
		`volumes[].projected.sources[].configMap.name: ""`,
		`volumes[].projected.sources[].secret.name: ""`,
	}
	var got []string
	var walk func(path string, schema *apiextensionsv1.JSONSchemaProps)
	walk = func(path string, schema *apiextensionsv1.JSONSchemaProps) {
		if schema.Default != nil {
			got = append(got, fmt.Sprintf("%s: %s", path, schema.Default.Raw))
		}
		for name, property := range schema.Properties {
			walk(strings.TrimPrefix(path+"."+name, "."), &property)
		}
		if schema.Items != nil {
			walk(path+"[]", schema.Items.Schema)
		}
		if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
			walk(path+"{}", schema.AdditionalProperties.Schema)
		}
	}
	crd, err := readCRD()
	if err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	walk("", &spec)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults in the schema (-known +there): see the comment of content\n%s", diff)
	}
}

func TestInputs(t *testing.T) {
	base := readInput(t, "everything").Server
	before := InputsOf(base, "r")
	for name, test := range map[string]struct {
		change func(server *mcpv1alpha1.MCPServer)
		want   bool // whether the template is rendered again
	}{
		"replicas":         {func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas = new(int32(9)) }, false},
		"suspend":          {func(s *mcpv1alpha1.MCPServer) { s.Spec.Suspend = true }, false},
		"service":          {func(s *mcpv1alpha1.MCPServer) { s.Spec.Service.Port = new(int32(9)) }, false},
		"verification":     {func(s *mcpv1alpha1.MCPServer) { s.Spec.Verification.Interval = nil }, false},
		"rollout":          {func(s *mcpv1alpha1.MCPServer) { s.Spec.Rollout = mcpv1alpha1.Rollout{} }, false},
		"allowedHosts":     {func(s *mcpv1alpha1.MCPServer) { s.Spec.Adapter.AllowedHosts = nil }, false},
		"allowedOrigins":   {func(s *mcpv1alpha1.MCPServer) { s.Spec.Adapter.AllowedOrigins = nil }, false},
		"verbosity":        {func(s *mcpv1alpha1.MCPServer) { s.Spec.Adapter.Verbosity = new(int32(5)) }, false},
		"status":           {func(s *mcpv1alpha1.MCPServer) { s.Status.Replicas = 3 }, false},
		"label":            {func(s *mcpv1alpha1.MCPServer) { s.Labels = map[string]string{"a": "b"} }, false},
		"other annotation": {func(s *mcpv1alpha1.MCPServer) { s.Annotations = map[string]string{"a": "b"} }, false},
		"generation":       {func(s *mcpv1alpha1.MCPServer) { s.Generation++ }, false},
		"refresh": {func(s *mcpv1alpha1.MCPServer) {
			s.Annotations = map[string]string{mcpv1alpha1.AnnotationRefresh: "now"}
		}, true},
		"image":       {func(s *mcpv1alpha1.MCPServer) { s.Spec.Image += "0" }, true},
		"command":     {func(s *mcpv1alpha1.MCPServer) { s.Spec.Command = nil }, true},
		"env":         {func(s *mcpv1alpha1.MCPServer) { s.Spec.Env[0].Value = "x" }, true},
		"pull secret": {func(s *mcpv1alpha1.MCPServer) { s.Spec.ImagePullSecrets = nil }, true},
		"session":     {func(s *mcpv1alpha1.MCPServer) { s.Spec.Session.DrainTimeout = &metav1.Duration{} }, true},
		"limits":      {func(s *mcpv1alpha1.MCPServer) { s.Spec.Adapter.Limits = nil }, true},
		"transport":   {func(s *mcpv1alpha1.MCPServer) { s.Spec.Transport.Stdio.Framing = mcpv1alpha1.FramingContentLength }, true},
		"sessions":    {func(s *mcpv1alpha1.MCPServer) { s.Spec.Transport.Sessions = mcpv1alpha1.ServerSessionsStateless }, true},
		"hostUsers":   {func(s *mcpv1alpha1.MCPServer) { s.Spec.PodTemplate.HostUsers = new(false) }, true},
		"account":     {func(s *mcpv1alpha1.MCPServer) { s.Spec.ServiceAccountName = "" }, true},
		"tolerations": {func(s *mcpv1alpha1.MCPServer) { s.Spec.PodTemplate.Tolerations = nil }, true},
		"security":    {func(s *mcpv1alpha1.MCPServer) { s.Spec.SecurityContext.Privileged = new(true) }, true},
		"volume":      {func(s *mcpv1alpha1.MCPServer) { s.Spec.Volumes = []corev1.Volume{} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := base.DeepCopy()
			test.change(server)
			if isSame := before.MatchSpec(server); isSame == test.want {
				t.Errorf("changed: %t, want %t", !isSame, test.want)
			}
		})
	}
	if got := InputsOf(base, "other"); got.References != "other" || got.Hash != before.Hash {
		t.Errorf("references: %v after %v", got, before)
	}
}

// A podTemplate that says nothing of pods is like none.
func TestInputsOfEmptyPodTemplate(t *testing.T) {
	server := readInput(t, "minimal").Server
	before := InputsOf(server, "")
	server.Spec.PodTemplate = &mcpv1alpha1.PodTemplate{Tolerations: []corev1.Toleration{}}
	if !before.MatchSpec(server) {
		t.Errorf("%s after %s", InputsOf(server, "").Content, before.Content)
	}
}
