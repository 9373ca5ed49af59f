package workload

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// What a hash is taken of, and the hash, are pinned: if either changes, then every pod
// in the world is restarted by an upgrade of the operator. Update the file only for
// new cases.
func TestInputsArePinned(t *testing.T) {
	type pinned struct {
		Hashed json.RawMessage `json:"hashed"`
		Inputs Inputs          `json:"inputs"`
	}
	for format, file := range map[int]string{formatFlags: "inputs.yaml", formatSettings: "inputs-1.yaml"} {
		all := map[string]pinned{}
		for _, name := range cases(t) {
			in := readInput(t, name)
			if name == "suspended" {
				in.Server.Annotations = map[string]string{mcpv1alpha1.AnnotationRefresh: "2026-11-15"}
			}
			part := podSpec(&in.Server.Spec)
			if format == formatSettings {
				part = withoutSettings(part)
			}
			content, err := canonical(hashed{part, in.Server.Annotations[mcpv1alpha1.AnnotationRefresh]})
			if err != nil {
				t.Fatal(err)
			}
			all[name] = pinned{content, inputsAs(format, in.Server, in.References)}
		}
		golden(t, filepath.Join("testdata", file), all, nil)
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

// A field that is left out has no place in the hash, so that one can be added.
func TestZeroSpecIsEmpty(t *testing.T) {
	for name, object := range map[string]any{
		"spec": mcpv1alpha1.MCPServerSpec{}, "session": mcpv1alpha1.Session{}, "adapter": mcpv1alpha1.Adapter{},
		"limits": mcpv1alpha1.AdapterLimits{}, "podTemplate": mcpv1alpha1.PodTemplate{}, "podTemplate.metadata": mcpv1alpha1.PodMetadata{},
		"transport": mcpv1alpha1.Transport{}, "stdio": mcpv1alpha1.StdioTransport{}, "http": mcpv1alpha1.HTTPTransport{}, "sse": mcpv1alpha1.SSETransport{},
	} {
		encoded, err := json.Marshal(object)
		if err != nil || string(encoded) != "{}" {
			t.Errorf("%s that says nothing is %s, %v: a field lacks omitempty", name, encoded, err)
		}
	}
}

// The API server fills defaults in. One that is added later would change the hash of
// every spec that stays the same: podSpec must remove it where it is the default. Those
// of the first version are part of the hash.
func TestSchemaDefaultsAreKnown(t *testing.T) {
	want := []string{
		"adapter", "adapter.upgrade", "probe", "probe.interval", "probe.timeout", "replicas",
		"service", "service.port", "service.type",
		"session", "session.callTimeout", "session.drainTimeout", "session.idleTimeout", "session.maxLifetime", "session.maxPerPod",
		"transport.http.path", "transport.sse.path", "transport.stdio.era", "transport.stdio.framing",
	}
	var got []string
	var walk func(path string, schema apiextensionsv1.JSONSchemaProps)
	walk = func(path string, schema apiextensionsv1.JSONSchemaProps) {
		for name, property := range schema.Properties {
			inner := name
			if path != "" {
				inner = path + "." + name
			}
			// The protocol of a probe's port and the like are Kubernetes' own, in lists
			// and structures of its own.
			if property.Default != nil && path != "env" {
				got = append(got, inner)
			}
			walk(inner, property)
		}
	}
	crd, err := readCRD()
	if err != nil {
		t.Fatal(err)
	}
	walk("", crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults in the schema (-known +there): see the comment of hashed\n%s", diff)
	}
}

func TestInputs(t *testing.T) {
	base := readInput(t, "everything").Server
	before := InputsOf(base, "r")
	for name, test := range map[string]struct {
		change func(server *mcpv1alpha1.MCPServer)
		want   bool // that pods are rendered anew
	}{
		"replicas": {func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas = new(int32(9)) }, false},
		"suspend":  {func(s *mcpv1alpha1.MCPServer) { s.Spec.Suspend = true }, false},
		"service":  {func(s *mcpv1alpha1.MCPServer) { s.Spec.Service.Port = new(int32(9)) }, false},
		"probe":    {func(s *mcpv1alpha1.MCPServer) { s.Spec.Probe.Interval = nil }, false},
		"upgrade":  {func(s *mcpv1alpha1.MCPServer) { s.Spec.Adapter.Upgrade = mcpv1alpha1.AdapterUpgradeOnChange }, false},
		"onReferenceChange": {func(s *mcpv1alpha1.MCPServer) {
			s.Spec.PodTemplate.OnReferenceChange = mcpv1alpha1.ReferenceChangeIgnore
		}, false},
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
		"transport":   {func(s *mcpv1alpha1.MCPServer) { s.Spec.Transport.Stdio = nil }, true},
		"era":         {func(s *mcpv1alpha1.MCPServer) { s.Spec.Transport.Stdio.Era = mcpv1alpha1.EraModern }, true},
		"account":     {func(s *mcpv1alpha1.MCPServer) { s.Spec.ServiceAccountName = "" }, true},
		"tolerations": {func(s *mcpv1alpha1.MCPServer) { s.Spec.PodTemplate.Tolerations = nil }, true},
		"security":    {func(s *mcpv1alpha1.MCPServer) { s.Spec.SecurityContext.Privileged = new(true) }, true},
		"volume":      {func(s *mcpv1alpha1.MCPServer) { s.Spec.Volumes = []corev1.Volume{} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := base.DeepCopy()
			test.change(server)
			if after := InputsOf(server, "r"); (after != before) != test.want {
				t.Errorf("changed: %t, want %t", after != before, test.want)
			}
		})
	}
	if got := InputsOf(base, "other"); got == before || got.Spec != before.Spec {
		t.Errorf("references: %v after %v", got, before)
	}
}

// A podTemplate that says nothing of pods is like none.
func TestInputsOfEmptyPodTemplate(t *testing.T) {
	server := readInput(t, "minimal").Server
	before := InputsOf(server, "")
	server.Spec.PodTemplate = &mcpv1alpha1.PodTemplate{OnReferenceChange: mcpv1alpha1.ReferenceChangeIgnore, Tolerations: []corev1.Toleration{}}
	if after := InputsOf(server, ""); after != before {
		t.Errorf("%v after %v", after, before)
	}
}
