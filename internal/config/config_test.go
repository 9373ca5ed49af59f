package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	sidecarconfig "github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/option"
)

const header = "apiVersion: config.slipway.dev/v1alpha1\nkind: ManagerConfiguration\n"

func TestLoadFull(t *testing.T) {
	got, err := Load("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := Manager{
		APIVersion: "config.slipway.dev/v1alpha1",
		Kind:       "ManagerConfiguration",
		LeaderElection: LeaderElection{
			Namespace:     "operators",
			LeaseDuration: Duration(time.Minute),
			RenewDeadline: Duration(40 * time.Second),
			RetryPeriod:   Duration(5 * time.Second),
		},
		Metrics: Metrics{
			BindAddress:          "127.0.0.1:9443",
			Protocol:             ProtocolHTTPS,
			Authentication:       AuthenticationNone,
			CertificateDirectory: "/etc/slipway/metrics",
		},
		Health:   Health{BindAddress: "[::1]:9081"},
		Logging:  Logging{Format: LogFormatText, Level: 4},
		Adapter:  Adapter{Image: "registry.example/slipway/adapter:v1", ImagePullPolicy: corev1.PullAlways},
		Rollouts: Rollouts{MaxConcurrent: 3, OnOperatorUpgrade: RolloutRestart},
		Registry: Registry{
			Mode: RegistryDisabled, AllowedHosts: []string{"docker.io", "*.registry.example:5000"}, CertificateAuthorityFile: "/etc/slipway/ca.crt",
		},
		Auth: Auth{
			Require: RequireSelector,
			NamespaceSelector: metav1.LabelSelector{
				MatchLabels:      map[string]string{"team": "payments"},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"sandbox"}}},
			},
			AllowedIssuers: []string{"https://login.example.com", "https://sso.example.com/realms/*"},
		},
		Concurrency: Concurrency{Reconciliations: 32, Probes: 64},
		Pods:        Pods{RunAsUser: RunAsUserAssigned},
		Servers: Servers{
			Defaults: Defaults{
				Resources: corev1.ResourceRequirements{Requests: amountsOf("50m", "64Mi"), Limits: amountsOf("", "512Mi")},
				Adapter: AdapterDefaults{
					Resources: corev1.ResourceRequirements{Requests: amountsOf("20m", ""), Limits: amountsOf("", "256Mi")},
					Limits: mcpv1alpha1.AdapterLimits{
						Body: new(resource.MustParse("4Mi")), Line: new(resource.MustParse("8Mi")), Replay: new(resource.MustParse("64Ki")),
						CallsPerSession: new(int32(64)), StreamsPerSession: new(int32(4)), ConcurrentStarts: new(int32(2)),
					},
				},
			},
			Bounds: Bounds{Replicas: 10, SessionsPerPod: 50, Resources: amountsOf("2", "2Gi")},
		},
		ClusterDomain: "k8s.example",
		Namespaces:    []string{"team-a", "team-b"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
}

// amountsOf are resources; an empty text is left out.
func amountsOf(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if text != "" {
			list[name] = resource.MustParse(text)
		}
	}
	return list
}

func TestDefaultsAreValid(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
}

func TestLoadWithoutAFile(t *testing.T) {
	got, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), got); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manager.yaml")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("Load of a missing file: %v, want an error with its path", err)
	}
	if err := os.WriteFile(path, []byte(header+"surprise: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("Load of a wrong file: %v, want an error with its path", err)
	}
}

func TestDecode(t *testing.T) {
	tests := map[string]struct {
		file string
		want func(*Manager)
	}{
		"no fields: the defaults": {file: header},
		"comments and separators around the document": {
			file: "# first\n---\n" + header + "---\n# last\n",
		},
		"one field keeps its siblings' defaults": {
			file: header + "leaderElection: {leaseDuration: 30s}\n",
			want: func(m *Manager) { m.LeaderElection.LeaseDuration = Duration(30 * time.Second) },
		},
		"false is not the same as left out": {
			file: header + "leaderElection: {enabled: false}\n",
			want: func(m *Manager) { m.LeaderElection.Enabled = false },
		},
		"null leaves the default": {
			file: header + "metrics: null\nleaderElection: {leaseDuration: null}\nnamespaces: null\n",
		},
		"endpoints off": {
			file: header + "metrics: {bindAddress: \"0\"}\nhealth: {bindAddress: \"0\"}\n",
			want: func(m *Manager) { m.Metrics.BindAddress, m.Health.BindAddress = Off, Off },
		},
		"ports chosen by the system": {
			file: header + "metrics: {bindAddress: \"127.0.0.1:0\"}\nhealth: {bindAddress: \"127.0.0.1:0\"}\n",
			want: func(m *Manager) { m.Metrics.BindAddress, m.Health.BindAddress = "127.0.0.1:0", "127.0.0.1:0" },
		},
		"metrics in the open": {
			file: header + "metrics: {protocol: HTTP, authentication: None}\n",
			want: func(m *Manager) { m.Metrics.Protocol, m.Metrics.Authentication = ProtocolHTTP, AuthenticationNone },
		},
		"more workers of one kind": {
			file: header + "concurrency: {probes: 100}\n",
			want: func(m *Manager) { m.Concurrency.Probes = 100 },
		},
		"every client must authenticate": {
			file: header + "auth: {require: All}\n",
			want: func(m *Manager) { m.Auth.Require = RequireAll },
		},
		"issuers with a path, a port or a slash": {
			file: header + "auth: {allowedIssuers: ['https://a.example:8443', 'https://a.example/', 'https://a.example/*', 'https://a.example/b/']}\n",
			want: func(m *Manager) {
				m.Auth.AllowedIssuers = []string{"https://a.example:8443", "https://a.example/", "https://a.example/*", "https://a.example/b/"}
			},
		},
		"JSON": {
			file: `{"apiVersion": "config.slipway.dev/v1alpha1", "kind": "ManagerConfiguration", "logging": {"level": 2}}`,
			want: func(m *Manager) { m.Logging.Level = 2 },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := Default()
			if test.want != nil {
				test.want(&want)
			}
			got, err := Decode([]byte(test.file))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Decode (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	tests := map[string]struct {
		file string
		want []string
	}{
		"an empty file":                 {"# nothing\n", []string{"empty", "config.slipway.dev/v1alpha1", "ManagerConfiguration"}},
		"no mapping":                    {"- a\n- b\n", []string{"YAML mapping"}},
		"broken YAML":                   {header + "metrics: {bindAddress\n", []string{"yaml: line"}},
		"two documents":                 {header + "---\n" + header, []string{"one YAML document"}},
		"no apiVersion":                 {"kind: ManagerConfiguration\n", []string{"apiVersion is missing, expected config.slipway.dev/v1alpha1"}},
		"no kind":                       {"apiVersion: config.slipway.dev/v1alpha1\n", []string{"kind is missing, expected ManagerConfiguration"}},
		"another version":               {strings.Replace(header, "v1alpha1", "v2", 1), []string{"apiVersion is config.slipway.dev/v2, expected config.slipway.dev/v1alpha1"}},
		"another kind":                  {strings.Replace(header, "Manager", "Gateway", 1), []string{"kind is GatewayConfiguration, expected ManagerConfiguration"}},
		"the type first":                {"apiVersion: v1\nkind: Pod\nspec: {}\n", []string{"apiVersion is v1, expected config.slipway.dev/v1alpha1\nkind is Pod, expected ManagerConfiguration"}},
		"an unknown field":              {header + "leaderElektion: {}\n", []string{`unknown field "leaderElektion"`}},
		"all unknown fields":            {header + "one: 1\nmetrics: {two: 2}\n", []string{`unknown field "one"`, `unknown field "metrics.two"`}},
		"wrong case":                    {header + "Metrics: {}\n", []string{`unknown field "Metrics"`}},
		"a duplicate field":             {header + "logging:\n  level: 1\n  level: 2\n", []string{"line 5", `"level" already set`}},
		"a duplicate section":           {header + "logging: {}\nlogging: {}\n", []string{`"logging" already set`}},
		"a number for a time":           {header + "leaderElection: {leaseDuration: 15}\n", []string{"leaderElection.leaseDuration must be a duration such as 15s or 1m30s, not 15"}},
		"no unit":                       {header + "leaderElection: {retryPeriod: \"2\"}\n", []string{`leaderElection.retryPeriod must be a duration such as 15s or 1m30s, not "2"`}},
		"a word for a number":           {header + "logging: {level: debug}\n", []string{"logging.level must be a whole number, not string"}},
		"a word for a boolean":          {header + "leaderElection: {enabled: \"yes\"}\n", []string{"leaderElection.enabled must be true or false, not string"}},
		"a word for a list":             {header + "namespaces: team-a\n", []string{"namespaces must be a list, not string"}},
		"a list for a section":          {header + "metrics: []\n", []string{"metrics must be a mapping, not array"}},
		"a level too high":              {header + "logging: {level: 6}\n", []string{"logging.level must be from 0 to 5, not 6"}},
		"an unknown format":             {header + "logging: {format: json}\n", []string{`logging.format must be JSON or Text, not "json"`}},
		"an unknown protocol":           {header + "metrics: {protocol: gRPC}\n", []string{`metrics.protocol must be HTTPS or HTTP, not "gRPC"`}},
		"no authentication":             {header + "metrics: {authentication: \"\"}\n", []string{`metrics.authentication must be Kubernetes or None, not ""`}},
		"tokens in the open":            {header + "metrics: {protocol: HTTP}\n", []string{"tokens unencrypted"}},
		"unused certificates":           {header + "metrics: {protocol: HTTP, authentication: None, certificateDirectory: /c}\n", []string{"metrics.certificateDirectory must not be set"}},
		"no address":                    {header + "health: {bindAddress: \"\"}\n", []string{`health.bindAddress must be host:port, :port, or "0" for off, not ""`}},
		"no port":                       {header + "metrics: {bindAddress: localhost}\n", []string{"metrics.bindAddress must be host:port"}},
		"an impossible port":            {header + "metrics: {bindAddress: \":70000\"}\n", []string{`metrics.bindAddress: "70000" is not a port number`}},
		"the same port twice":           {header + "metrics: {bindAddress: \":8081\"}\n", []string{"must not both use port 8081"}},
		"a lease too short":             {header + "leaderElection: {leaseDuration: 10s}\n", []string{"leaderElection.leaseDuration (10s) must be longer than renewDeadline (10s)"}},
		"a deadline too short":          {header + "leaderElection: {renewDeadline: 2400ms}\n", []string{"leaderElection.renewDeadline (2.4s) must be longer than 1.2 times retryPeriod (2s)"}},
		"no retries":                    {header + "leaderElection: {retryPeriod: 0s}\n", []string{"leaderElection.retryPeriod must be positive"}},
		"less than a second":            {header + "leaderElection: {leaseDuration: 900ms, renewDeadline: 500ms, retryPeriod: 100ms}\n", []string{"leaderElection.leaseDuration must be at least 1s"}},
		"a negative number of rollouts": {header + "rollouts: {maxConcurrent: -1}\n", []string{"rollouts.maxConcurrent must not be negative: it is -1"}},
		"an unknown upgrade":            {header + "rollouts: {onOperatorUpgrade: Never}\n", []string{`rollouts.onOperatorUpgrade must be Restart or Ignore, not "Never"`}},
		"an unknown mode":               {header + "registry: {mode: Sometimes}\n", []string{`registry.mode must be Enabled or Disabled, not "Sometimes"`}},
		"hosts that are none": {
			header + "registry: {allowedHosts: [ghcr.io, 'https://ghcr.io', ghcr.io/team, '*', 'a.*.b', '']}\n", []string{
				`registry.allowedHosts[1]: "https://ghcr.io" is no registry`, "allowedHosts[2]", "allowedHosts[3]", "allowedHosts[4]", "allowedHosts[5]",
			},
		},
		"an unknown requirement":      {header + "auth: {require: true}\n", []string{"auth.require must be a string, not bool"}},
		"another requirement":         {header + "auth: {require: Some}\n", []string{`auth.require must be None or All or Selector, not "Some"`}},
		"a selector of nothing":       {header + "auth: {require: Selector}\n", []string{"auth.namespaceSelector must select something", "use All"}},
		"a selector that is not used": {header + "auth: {require: All, namespaceSelector: {matchLabels: {a: b}}}\n", []string{"auth.namespaceSelector must not be set with auth.require All"}},
		"a selector without a mode":   {header + "auth: {namespaceSelector: {matchLabels: {a: b}}}\n", []string{"auth.namespaceSelector must not be set with auth.require None"}},
		"a selector that is none": {
			header + "auth: {require: Selector, namespaceSelector: {matchLabels: {a: 'b c'}, matchExpressions: [{key: d, operator: Exists, values: [e]}]}}\n",
			[]string{"auth.namespaceSelector.matchLabels", "auth.namespaceSelector.matchExpressions[0].values"},
		},
		"a misspelled selector": {header + "auth: {namespaceSelector: {matchLables: {}}}\n", []string{`unknown field "auth.namespaceSelector.matchLables"`}},
		"issuers that are none": {
			header + "auth: {allowedIssuers: [https://a.example, 'http://b.example', c.example, 'https://*.example', 'https://d.example?x', 'https://e@f', 'https://g.example/a/../b', https://a.example, '*', 'https:///*']}\n",
			[]string{
				`auth.allowedIssuers[1]: "http://b.example" is no issuer`, "allowedIssuers[2]", "allowedIssuers[3]", "allowedIssuers[4]", "allowedIssuers[5]",
				"allowedIssuers[6]: \"https://g.example/a/../b\" must not have dots", "auth.allowedIssuers[7]: https://a.example is there twice", "allowedIssuers[8]", "allowedIssuers[9]",
			},
		},
		"a default that is not a quantity": {header + "servers: {defaults: {resources: {limits: {memory: much}}}}\n", []string{`servers.defaults.resources.limits.memory must be a quantity such as 500m or 64Mi, not "much"`}},
		"a request above its limit": {
			header + "servers: {defaults: {resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}}}\n",
			[]string{"servers.defaults.resources.requests.memory (2Gi) must not be more than the limit (1Gi)"},
		},
		"claims": {header + "servers: {defaults: {resources: {claims: [{name: gpu}]}}}\n", []string{"servers.defaults.resources.claims must not be set"}},
		"a negative default": {
			header + "servers: {defaults: {adapter: {resources: {limits: {cpu: -1}}}}}\n", []string{"servers.defaults.adapter.resources.limits.cpu must not be negative: it is -1"},
		},
		"an adapter without room": {
			header + "servers: {defaults: {adapter: {resources: {limits: {memory: 255Mi}}}}}\n",
			[]string{"servers.defaults.adapter.resources.limits.memory must be at least 256Mi, not 255Mi"},
		},
		"limits that adapters do not take": {
			header + "servers: {defaults: {adapter: {limits: {body: 33Mi, line: 1023, replay: 2Gi, callsPerSession: 0, streamsPerSession: -1, concurrentStarts: 16385}}}}\n",
			[]string{
				"servers.defaults.adapter.limits.body must be from 1Ki to 32Mi, not 33Mi", "limits.line must be from 1Ki to 64Mi, not 1023",
				"limits.replay must be from 0 to 1Gi, not 2Gi", "limits.callsPerSession must be from 1 to 16384, not 0",
				"limits.streamsPerSession must be from 1 to 16384, not -1", "limits.concurrentStarts must be from 1 to 16384, not 16385",
			},
		},
		"a default above its bound": {
			header + "servers: {defaults: {resources: {limits: {memory: 4Gi}}}, bounds: {resources: {memory: 2Gi}}}\n",
			[]string{"servers.defaults.resources.limits.memory (4Gi) must not be more than servers.bounds.resources.memory (2Gi)"},
		},
		"resources that are none": {
			header + "servers: {defaults: {resources: {limits: {memroy: 1Gi}}}, bounds: {resources: {memory: 0}}}\n",
			[]string{"servers.defaults.resources.limits.memroy is no resource of Kubernetes", "servers.bounds.resources.memory must be positive"},
		},
		"a device without a limit": {
			header + "servers: {defaults: {resources: {requests: {example.com/gpu: 1}}}}\n",
			[]string{"servers.defaults.resources.requests.example.com/gpu (1) must be the limit (0)"},
		},
		"a quantity that is true": {
			header + "servers: {bounds: {resources: {memory: true}}}\n", []string{"servers.bounds.resources.memory must be a quantity such as 500m or 64Mi, not true"},
		},
		"bounds below zero": {
			header + "servers: {bounds: {replicas: -1, sessionsPerPod: -2, resources: {memory: -1Gi}}}\n", []string{
				"servers.bounds.replicas must not be negative: it is -1", "servers.bounds.sessionsPerPod must not be negative: it is -2",
				"servers.bounds.resources.memory must not be negative: it is -1Gi",
			},
		},
		"no workers":       {header + "concurrency: {reconciliations: 0}\n", []string{"concurrency.reconciliations must be from 1 to 1000, not 0"}},
		"too many workers": {header + "concurrency: {probes: 16270}\n", []string{"concurrency.probes must be from 1 to 1000, not 16270"}},
		"no name of a lease's namespace": {
			header + "leaderElection: {namespace: Not_One}\n", []string{`leaderElection.namespace: "Not_One" is not the name of a namespace`},
		},
		"namespaces that are none, and twice": {
			header + "namespaces: [a, B, a]\n", []string{`namespaces[1]: "B" is not the name of a namespace`, "namespaces[2]: a is there twice"},
		},
		"several things at once": {
			header + "logging: {level: -1}\nhealth: {bindAddress: x}\n", []string{"logging.level", "health.bindAddress"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Decode([]byte(test.file))
			if err == nil {
				t.Fatal("Decode took the file")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Decode: %v\nwant it to say: %s", err, want)
				}
			}
		})
	}
}

// defaultLine is a line of the installed file that shows a default: a comment
// sign, then no space or an indent.
var defaultLine = regexp.MustCompile(`(?m)^#(\S|  )`)

func TestInstalledFileShowsTheDefaults(t *testing.T) {
	installed, err := os.ReadFile("../../config/manager/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"as it is":    installed,
		"uncommented": defaultLine.ReplaceAll(installed, []byte("$1")),
	} {
		got, err := Decode(content)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(Default(), got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	uncommented := defaultLine.ReplaceAll(installed, []byte("$1"))
	for _, field := range fields(reflect.TypeFor[Manager]()) {
		if !regexp.MustCompile(`(?m)^ *` + field + `:`).Match(uncommented) {
			t.Errorf("config/manager/config.yaml does not show %s", field)
		}
	}
}

// fields are the names of all fields in the file, sections and what is in them.
func fields(section reflect.Type) []string {
	var names []string
	for field := range section.Fields() {
		names = append(names, field.Tag.Get("json"))
		// What has a type of the API is written as in an MCPServer.
		if field.Type.Kind() == reflect.Struct && field.Type.PkgPath() == section.PkgPath() {
			names = append(names, fields(field.Type)...)
		}
	}
	return names
}

// The file takes every limit that a spec can have, other than the sizes of messages, and refuses
// what would keep an adapter from starting.
func TestDefaultLimits(t *testing.T) {
	text, err := os.ReadFile("../../config/crd/bases/mcp.slipway.dev_mcpservers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	properties := spec.Properties["adapter"].Properties["limits"].Properties
	if want := reflect.TypeFor[mcpv1alpha1.AdapterLimits]().NumField(); len(properties) != want {
		t.Fatalf("the CRD has %d limits, want %d", len(properties), want)
	}
	decode := func(name string, value float64) error {
		_, err := Decode(fmt.Appendf(nil, "%sservers: {defaults: {adapter: {limits: {%s: %.0f}}}}\n", header, name, value))
		return err
	}
	for name, property := range properties {
		least, most := 1024.0, 32.0*(1<<20) // of the sizes of messages
		if property.Minimum != nil {
			least, most = *property.Minimum, *property.Maximum
		}
		for _, value := range []float64{least, most} {
			if err := decode(name, value); err != nil {
				t.Errorf("%s %.0f: %v", name, value, err)
			}
		}
		for value := 1.0; value < 1<<40; value *= 4 {
			adapter := sidecarconfig.Defaults()
			adapter.MemoryLimit = 256 << 20 // that of adapters whose specs say nothing
			flags := flag.NewFlagSet(name, flag.ContinueOnError)
			adapter.BindFlags(flags)
			for o := range option.All() {
				if o.Field == "spec.adapter.limits."+name {
					if err := flags.Set(o.Name(), fmt.Sprintf("%.0f", value)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if refused := adapter.Validate(); refused != nil && decode(name, value) == nil {
				t.Errorf("%s %.0f is taken, and adapters refuse it: %v", name, value, refused)
			}
		}
	}
}
