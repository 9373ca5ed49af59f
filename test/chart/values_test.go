package chart

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const deployment = "Deployment/slipway-system/slipway-manager"

// pod is a path in the manager's pod.
func pod(steps ...any) []any {
	return append([]any{"spec", "template", "spec"}, steps...)
}

func manager(steps ...any) []any {
	return pod(append([]any{"containers", 0}, steps...)...)
}

// valueTests have a case or more for each value: TestEveryValueIsTested sees to that.
var valueTests = map[string]struct {
	values string
	object string
	path   []any
	want   string // YAML; empty if there is nothing at the path
	absent string // an object that must not be there
}{
	"crds.enabled":                       {values: "crds: {enabled: false}", absent: "CustomResourceDefinition/mcpservers.mcp.slipway.dev"},
	"crds.keep":                          {values: "crds: {keep: false}", object: "CustomResourceDefinition/mcpservers.mcp.slipway.dev", path: []any{"metadata", "annotations", "helm.sh/resource-policy"}},
	"crds.keep by default":               {object: "CustomResourceDefinition/mcpservers.mcp.slipway.dev", path: []any{"metadata", "annotations", "helm.sh/resource-policy"}, want: "keep"},
	"image.prefix":                       {values: "image: {prefix: a.example/b}", object: deployment, path: manager("image"), want: "a.example/b/manager:dev"},
	"image.prefix of the adapter":        {values: "image: {prefix: a.example/b}", object: deployment, path: manager("env", 0, "value"), want: "a.example/b/adapter:dev"},
	"image.tag":                          {values: "image: {tag: v9}", object: deployment, path: manager("image"), want: "localhost/slipway/manager:v9"},
	"image.tag of the adapter":           {values: "image: {tag: v9}", object: deployment, path: manager("env", 0, "value"), want: "localhost/slipway/adapter:v9"},
	"image.tag as a label":               {values: "image: {tag: v9}", object: deployment, path: []any{"metadata", "labels", "app.kubernetes.io/version"}, want: "v9"},
	"image.tag like a number":            {values: "image: {tag: \"1\"}", object: deployment, path: []any{"metadata", "labels", "app.kubernetes.io/version"}, want: `"1"`},
	"image.tag of a pod":                 {values: "image: {tag: v9}", object: deployment, path: []any{"spec", "template", "metadata", "labels", "app.kubernetes.io/version"}, want: "v9"},
	"image.pullPolicy":                   {values: "image: {pullPolicy: Always}", object: deployment, path: manager("imagePullPolicy"), want: "Always"},
	"manager.image.repository":           {values: "manager: {image: {repository: x.example/m}}", object: deployment, path: manager("image"), want: "x.example/m:dev"},
	"manager.image.tag":                  {values: "{image: {tag: v9}, manager: {image: {tag: v8}}}", object: deployment, path: manager("image"), want: "localhost/slipway/manager:v8"},
	"manager.image.digest":               {values: "manager: {image: {digest: \"" + digest + "\", tag: v8}}", object: deployment, path: manager("image"), want: "localhost/slipway/manager@" + digest},
	"adapter.image.repository":           {values: "adapter: {image: {repository: x.example/a}}", object: deployment, path: manager("env", 0, "value"), want: "x.example/a:dev"},
	"adapter.image.tag":                  {values: "adapter: {image: {tag: v8}}", object: deployment, path: manager("env", 0, "value"), want: "localhost/slipway/adapter:v8"},
	"adapter.image.digest":               {values: "adapter: {image: {digest: \"" + digest + "\"}}", object: deployment, path: manager("env", 0, "value"), want: "localhost/slipway/adapter@" + digest},
	"imagePullSecrets":                   {values: "imagePullSecrets: [{name: pull}]", object: deployment, path: pod("imagePullSecrets"), want: "[{name: pull}]"},
	"config":                             {values: "config: {logging: {level: 3}}", object: "ConfigMap/slipway-system/slipway-manager-config", path: []any{"data", "config.yaml"}, want: "\"apiVersion: config.slipway.dev/v1alpha1\\nkind: ManagerConfiguration\\nlogging:\\n  level: 3\\n\""},
	"config: metrics port":               {values: "config: {metrics: {bindAddress: \":9443\"}}", object: deployment, path: manager("ports", 0, "containerPort"), want: "9443"},
	"config: metrics protocol":           {values: "config: {metrics: {protocol: HTTP, authentication: None}}", object: "Service/slipway-system/slipway-manager-metrics", path: []any{"spec", "ports", 0, "name"}, want: "http"},
	"config: no metrics":                 {values: "config: {metrics: {bindAddress: \"0\"}}", absent: "Service/slipway-system/slipway-manager-metrics"},
	"config: lease":                      {values: "config: {leaderElection: {namespace: elsewhere}}", object: "Role/elsewhere/slipway-manager-role", path: []any{"rules", 1, "resources"}, want: "[leases]"},
	"config: lease for whom":             {values: "config: {leaderElection: {namespace: elsewhere}}", object: "RoleBinding/elsewhere/slipway-manager-rolebinding", path: []any{"subjects"}, want: "[{kind: ServiceAccount, name: slipway-manager, namespace: slipway-system}]"},
	"config: health port":                {values: "config: {health: {bindAddress: \":9081\"}}", object: deployment, path: manager("ports", 1, "containerPort"), want: "9081"},
	"config: no health":                  {values: "config: {health: {bindAddress: \"0\"}}", object: deployment, path: manager("livenessProbe")},
	"watchNamespaces":                    {values: narrow, object: "RoleBinding/team-b/slipway-manager", path: []any{"roleRef"}, want: "{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: slipway-manager-role}"},
	"watchNamespaces for whom":           {values: narrow, object: "RoleBinding/team-a/slipway-manager", path: []any{"subjects"}, want: "[{kind: ServiceAccount, name: slipway-manager, namespace: slipway-system}]"},
	"watchNamespaces and no more":        {values: narrow, absent: "ClusterRoleBinding/slipway-manager-rolebinding"},
	"watchNamespaces: config":            {values: narrow, object: "ConfigMap/slipway-system/slipway-manager-config", path: []any{"data", "config.yaml"}, want: "\"apiVersion: config.slipway.dev/v1alpha1\\nkind: ManagerConfiguration\\nmetrics:\\n  authentication: None\\nnamespaces:\\n- team-a\\n- team-b\\n\""},
	"watchNamespaces: podMonitor":        {values: "{watchNamespaces: [team-a], config: {metrics: {authentication: None}}, metrics: {podMonitor: {enabled: true}}}", object: "PodMonitor/slipway-system/slipway-adapters", path: []any{"spec", "namespaceSelector"}, want: "{matchNames: [team-a]}"},
	"replicas":                           {values: "replicas: 2", object: deployment, path: []any{"spec", "replicas"}, want: "2"},
	"resources":                          {values: "resources: {limits: {memory: 1Gi}}", object: deployment, path: manager("resources", "limits", "memory"), want: "1Gi"},
	"podDisruptionBudget.enabled":        {values: "{replicas: 2, podDisruptionBudget: {enabled: true}}", object: "PodDisruptionBudget/slipway-system/slipway-manager", path: []any{"spec", "selector", "matchLabels"}, want: "{app.kubernetes.io/name: slipway, app.kubernetes.io/component: manager}"},
	"podDisruptionBudget.maxUnavailable": {values: "{replicas: 4, podDisruptionBudget: {enabled: true, maxUnavailable: 50%}}", object: "PodDisruptionBudget/slipway-system/slipway-manager", path: []any{"spec", "maxUnavailable"}, want: "50%"},
	"serviceAccount.create":              {values: "serviceAccount: {create: false}", absent: "ServiceAccount/slipway-system/slipway-manager"},
	"serviceAccount.name":                {values: "serviceAccount: {name: other}", object: deployment, path: pod("serviceAccountName"), want: "other"},
	"serviceAccount.name: binding":       {values: "serviceAccount: {name: other}", object: "ClusterRoleBinding/slipway-manager-rolebinding", path: []any{"subjects", 0, "name"}, want: "other"},
	"serviceAccount.annotations":         {values: "serviceAccount: {annotations: {role: x}}", object: "ServiceAccount/slipway-system/slipway-manager", path: []any{"metadata", "annotations"}, want: "{role: x}"},
	"rbac.create":                        {values: "rbac: {create: false}", absent: "ClusterRole/slipway-manager-role"},
	"rbac.create: bindings":              {values: "rbac: {create: false}", absent: "ClusterRoleBinding/slipway-manager-rolebinding"},
	"rbac.create: user roles":            {values: "rbac: {create: false}", absent: "ClusterRole/slipway-mcpserver-admin-role"},
	"rbac.aggregateToDefaultRoles":       {values: "rbac: {aggregateToDefaultRoles: false}", object: "ClusterRole/slipway-mcpserver-admin-role", path: []any{"metadata", "labels", "rbac.authorization.k8s.io/aggregate-to-admin"}},
	"rbac.authDelegator":                 {values: "{watchNamespaces: [team-a], rbac: {authDelegator: true}}", object: "ClusterRoleBinding/slipway-manager-auth-delegator", path: []any{"roleRef", "name"}, want: "system:auth-delegator"},
	"rbac.namespaceLabels":               {values: "{watchNamespaces: [team-a], rbac: {authDelegator: true, namespaceLabels: true}, config: {auth: {require: Selector, namespaceSelector: {matchLabels: {a: b}}}}}", object: "ClusterRole/slipway-manager-namespaces", path: []any{"rules"}, want: "[{apiGroups: [\"\"], resources: [namespaces], verbs: [list, watch]}]"},
	"networkPolicy.enabled":              {values: "networkPolicy: {enabled: false}", absent: "NetworkPolicy/slipway-system/slipway-manager"},
	"networkPolicy.metricsFrom":          {values: "networkPolicy: {metricsFrom: [{podSelector: {}}]}", object: "NetworkPolicy/slipway-system/slipway-manager", path: []any{"spec", "ingress", 0, "from"}, want: "[{podSelector: {}}]"},
	"networkPolicy without metrics":      {values: "config: {metrics: {bindAddress: \"0\"}}", object: "NetworkPolicy/slipway-system/slipway-manager", path: []any{"spec", "ingress"}},

	"metrics.serviceMonitor.enabled":       {values: "metrics: {serviceMonitor: {enabled: true}}", object: "ServiceMonitor/slipway-system/slipway-manager", path: []any{"spec", "endpoints", 0, "scheme"}, want: "https"},
	"metrics.serviceMonitor.enabled: HTTP": {values: "{config: {metrics: {protocol: HTTP, authentication: None}}, metrics: {serviceMonitor: {enabled: true}}}", object: "ServiceMonitor/slipway-system/slipway-manager", path: []any{"spec", "endpoints"}, want: "[{port: http, scheme: http}]"},
	"metrics.serviceMonitor.labels":        {values: "metrics: {serviceMonitor: {enabled: true, labels: {release: x}}}", object: "ServiceMonitor/slipway-system/slipway-manager", path: []any{"metadata", "labels", "release"}, want: "x"},
	"metrics.serviceMonitor.interval":      {values: "metrics: {serviceMonitor: {enabled: true, interval: 15s}}", object: "ServiceMonitor/slipway-system/slipway-manager", path: []any{"spec", "endpoints", 0, "interval"}, want: "15s"},
	"metrics.podMonitor.enabled":           {values: "metrics: {podMonitor: {enabled: true}}", object: "PodMonitor/slipway-system/slipway-adapters", path: []any{"spec", "podMetricsEndpoints", 0, "port"}, want: "admin"},
	"metrics.podMonitor.labels":            {values: "metrics: {podMonitor: {enabled: true, labels: {release: x}}}", object: "PodMonitor/slipway-system/slipway-adapters", path: []any{"metadata", "labels", "release"}, want: "x"},
	"metrics.podMonitor.interval":          {values: "metrics: {podMonitor: {enabled: true, interval: 15s}}", object: "PodMonitor/slipway-system/slipway-adapters", path: []any{"spec", "podMetricsEndpoints", 0, "interval"}, want: "15s"},
	"metrics.prometheusRule.enabled":       {values: "metrics: {prometheusRule: {enabled: true}}", object: "PrometheusRule/slipway-system/slipway-alerts", path: []any{"spec", "groups", 0, "name"}, want: "slipway"},
	"metrics.prometheusRule.labels":        {values: "metrics: {prometheusRule: {enabled: true, labels: {release: x}}}", object: "PrometheusRule/slipway-system/slipway-alerts", path: []any{"metadata", "labels", "release"}, want: "x"},

	"commonLabels":              {values: "commonLabels: {team: a}", object: deployment, path: []any{"metadata", "labels", "team"}, want: "a"},
	"commonLabels: ours win":    {values: "commonLabels: {app.kubernetes.io/name: a}", object: deployment, path: []any{"metadata", "labels", "app.kubernetes.io/name"}, want: "slipway"},
	"commonAnnotations":         {values: "commonAnnotations: {team: a}", object: "CustomResourceDefinition/mcpservers.mcp.slipway.dev", path: []any{"metadata", "annotations", "team"}, want: "a"},
	"podLabels":                 {values: "podLabels: {team: a}", object: deployment, path: []any{"spec", "template", "metadata", "labels", "team"}, want: "a"},
	"podAnnotations":            {values: "podAnnotations: {team: a}", object: deployment, path: []any{"spec", "template", "metadata", "annotations", "team"}, want: "a"},
	"extraEnv":                  {values: "extraEnv: [{name: HTTPS_PROXY, value: \"http://proxy:3128\"}]", object: deployment, path: manager("env", 2), want: "{name: HTTPS_PROXY, value: \"http://proxy:3128\"}"},
	"extraVolumes":              {values: "extraVolumes: [{name: ca, configMap: {name: ca}}]", object: deployment, path: pod("volumes", 1), want: "{name: ca, configMap: {name: ca}}"},
	"extraVolumeMounts":         {values: "extraVolumeMounts: [{name: ca, mountPath: /ca}]", object: deployment, path: manager("volumeMounts", 1), want: "{name: ca, mountPath: /ca}"},
	"nodeSelector":              {values: "nodeSelector: {pool: infra}", object: deployment, path: pod("nodeSelector", "pool"), want: "infra"},
	"tolerations":               {values: "tolerations: [{operator: Exists}]", object: deployment, path: pod("tolerations"), want: "[{operator: Exists}]"},
	"affinity":                  {values: "affinity: {nodeAffinity: {}}", object: deployment, path: pod("affinity"), want: "{nodeAffinity: {}}"},
	"topologySpreadConstraints": {values: "topologySpreadConstraints: []", object: deployment, path: pod("topologySpreadConstraints")},
	"priorityClassName":         {values: "priorityClassName: system-cluster-critical", object: deployment, path: pod("priorityClassName"), want: "system-cluster-critical"},
}

const (
	digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	narrow = "{watchNamespaces: [team-a, team-b], config: {metrics: {authentication: None}}}"
)

// A value does what it says, and the default is something else.
func TestValues(t *testing.T) {
	defaults := render(t, "")
	for name, test := range valueTests {
		t.Run(name, func(t *testing.T) {
			objects := render(t, test.values)
			if test.absent != "" {
				if objects[test.absent] != nil {
					t.Errorf("%s is there", test.absent)
				}
				if defaults[test.absent] == nil {
					t.Errorf("%s is not there by default either: the test proves nothing", test.absent)
				}
				return
			}
			var want any
			if err := yaml.UnmarshalStrict([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			if objects[test.object] == nil {
				t.Fatalf("there is no %s, only %v", test.object, slices.Sorted(maps.Keys(objects)))
			}
			got := at(objects[test.object], test.path...)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s %v (-want +got):\n%s", test.object, test.path, diff)
			}
			if usual := defaults[test.object]; test.values != "" && !strings.Contains(name, "ours win") && usual != nil && cmp.Equal(at(usual, test.path...), got) {
				t.Error("it is the same by default: the test proves nothing")
			}
		})
	}
}

func TestEveryValueIsTested(t *testing.T) {
	tested := map[string]bool{}
	for name := range valueTests {
		value, _, _ := strings.Cut(name, ":")
		value, _, _ = strings.Cut(value, " ")
		tested[value] = true
	}
	// A value with content of its users has no values below it.
	whole := map[string]bool{"resources": true, "nodeSelector": true}
	var visit func(path string, values map[string]any)
	visit = func(path string, values map[string]any) {
		for key, value := range values {
			name := path + key
			if below, ok := value.(map[string]any); ok && len(below) > 0 && !whole[name] {
				visit(name+".", below)
			} else if !tested[name] {
				t.Errorf("no test of %s", name)
			}
		}
	}
	visit("", load(t).Values)
}

// A change of the configuration is a change of the pod, and nothing else is.
func TestConfigurationRestartsTheManager(t *testing.T) {
	template := func(values string) any { return at(render(t, values)[deployment], "spec", "template") }
	usual := template("")
	if diff := cmp.Diff(usual, template("config: {logging: {level: 1}}")); !strings.Contains(diff, "checksum/config") {
		t.Errorf("a changed configuration changes this of the pod template:\n%s", diff)
	}
	if diff := cmp.Diff(usual, template("{commonLabels: {a: b}, replicas: 3, metrics: {serviceMonitor: {enabled: true}}}")); diff != "" {
		t.Errorf("values that are not about the pod change its template:\n%s", diff)
	}
}

func TestNotes(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"default":    {"", `"helm uninstall" keeps the CRD, your MCPServers and their pods.`},
		"no keep":    {"crds: {keep: false}", `"helm uninstall" deletes the CRD and with it every MCPServer in the cluster.`},
		"no CRD":     {"crds: {enabled: false}", "The chart did not install the CRD."},
		"namespaces": {narrow, "these namespaces only: team-a, team-b."},
	} {
		t.Run(name, func(t *testing.T) {
			_, notes, err := tryRender(t, test.values)
			if err != nil || !strings.Contains(notes, test.want) {
				t.Errorf("notes, %v:\n%s", err, notes)
			}
		})
	}
}

// Wrong values are refused by the schema, or by a template, with a sentence that names the value.
func TestBadValuesAreRefused(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"an unknown value":           {"replica: 2", "additional properties 'replica' not allowed"},
		"an unknown value below":     {"crds: {kept: true}", "at '/crds': additional properties 'kept' not allowed"},
		"a string as a number":       {"replicas: \"2\"", "at '/replicas': got string, want integer"},
		"a number as a tag":          {"image: {tag: 1}", "at '/image/tag': got number, want string"},
		"a tag in the prefix":        {"image: {prefix: \"a.example/b/\"}", "at '/image/prefix'"},
		"a short digest":             {"manager: {image: {digest: \"sha256:12\"}}", "at '/manager/image/digest'"},
		"an unknown field of config": {"config: {loging: {}}", "at '/config': additional properties 'loging' not allowed"},
		"an unknown mode in config":  {"config: {registry: {mode: Off}}", "at '/config/registry/mode'"},
		"a duration in config":       {"config: {leaderElection: {leaseDuration: 15}}", "at '/config/leaderElection/leaseDuration': got number, want null or string"},
		"a namespace in capitals":    {"watchNamespaces: [Team]", "at '/watchNamespaces/0'"},
		"namespaces twice":           {"{watchNamespaces: [a], config: {namespaces: [a], metrics: {authentication: None}}}", "set watchNamespaces or config.namespaces, not both"},
		"metrics without reviews":    {"watchNamespaces: [a]", "set rbac.authDelegator to true, config.metrics.authentication to None, or config.metrics.bindAddress"},
		"labels that cannot be read": {"{watchNamespaces: [a], config: {metrics: {authentication: None}, auth: {require: Selector}}}", "set rbac.namespaceLabels to true, or config.auth.require to All"},
		"a budget for one":           {"podDisruptionBudget: {enabled: true}", "podDisruptionBudget.enabled needs replicas of 2 or more"},
		"alerts of nothing":          {"{config: {metrics: {bindAddress: \"0\"}}, metrics: {prometheusRule: {enabled: true}}}", "metrics.prometheusRule.enabled needs metrics"},
		"a monitor of nothing":       {"{config: {metrics: {bindAddress: \"0\"}}, metrics: {serviceMonitor: {enabled: true}}}", "metrics.serviceMonitor.enabled needs metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := tryRender(t, test.values)
			if message := fmt.Sprint(err); !strings.Contains(message, test.want) {
				t.Errorf("got %q, want %q in it", message, test.want)
			}
		})
	}
}

// The schema takes every field of the manager's configuration, and the chart passes it on.
func TestEveryFieldOfTheConfiguration(t *testing.T) {
	full, err := os.ReadFile(filepath.Join(repository, "internal", "config", "testdata", "full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	values := "config:\n"
	for line := range strings.Lines(string(full)) {
		values += "  " + line
	}
	var want, got any
	if err := yaml.UnmarshalStrict(full, &want); err != nil {
		t.Fatal(err)
	}
	file := at(render(t, values)["ConfigMap/slipway-system/slipway-manager-config"], "data", "config.yaml")
	if err := yaml.UnmarshalStrict([]byte(text(file)), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the manager's file is not what the values say (-want +got):\n%s", diff)
	}
}

// Values that look odd, and are good: the chart installs the same as without them.
func TestValuesThatSayNothing(t *testing.T) {
	for name, values := range map[string]string{
		"a configuration that is all comments":       "config:",
		"the condition of a chart that has this one": "enabled: true",
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(render(t, ""), render(t, values)); diff != "" {
				t.Errorf("with and without:\n%s", diff)
			}
		})
	}
}

// A label takes less than a tag.
func TestEveryTagMakesALabel(t *testing.T) {
	label := regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	for _, tag := range []string{"v1.2.3", "_v1", "v1-", "v1._-", strings.Repeat("v", 60) + "...-1"} {
		version := text(at(render(t, "image: {tag: \""+tag+"\"}")[deployment], "metadata", "labels", "app.kubernetes.io/version"))
		if !label.MatchString(version) {
			t.Errorf("tag %s makes the label %q", tag, version)
		}
	}
}

// Kubernetes has namespaces such as 1234, which YAML takes for numbers.
func TestNamesStayText(t *testing.T) {
	objects, _, err := tryRenderIn(t, "1234", `{watchNamespaces: ["007", "true"], serviceAccount: {name: "1e3"}, priorityClassName: "12", replicas: 2, podDisruptionBudget: {enabled: true},
		config: {metrics: {authentication: None}}, metrics: {serviceMonitor: {enabled: true}, podMonitor: {enabled: true}, prometheusRule: {enabled: true}}}`)
	if err != nil {
		t.Fatal(err)
	}
	var visit func(path string, of any)
	visit = func(path string, of any) {
		switch of := of.(type) {
		case map[string]any:
			for key, value := range of {
				visit(path+"."+key, value)
			}
		case []any:
			for _, value := range of {
				visit(path, value)
			}
		case string:
		default:
			for _, key := range []string{"name", "namespace", "serviceAccountName", "priorityClassName", "matchNames"} {
				if strings.HasSuffix(path, "."+key) {
					t.Errorf("%s is %v, not text", path, of)
				}
			}
		}
	}
	for key, o := range objects {
		visit(key, o)
	}
	for _, want := range []string{"Deployment/1234/slipway-manager", "RoleBinding/007/slipway-manager", "RoleBinding/true/slipway-manager", "ServiceAccount/1234/1e3"} {
		if objects[want] == nil {
			t.Errorf("there is no %s", want)
		}
	}
}
