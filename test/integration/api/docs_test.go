package api

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/workload"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// documentedPolicies are the NetworkPolicies that a page of the documentation shows, by name.
func documentedPolicies(t *testing.T, page string) map[string]*networkingv1.NetworkPolicy {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	policies := map[string]*networkingv1.NetworkPolicy{}
	for _, block := range yamlBlock.FindAllSubmatch(text, -1) {
		var kind metav1.TypeMeta
		if yaml.Unmarshal(block[1], &kind) != nil || kind.Kind != "NetworkPolicy" {
			continue
		}
		policy := &networkingv1.NetworkPolicy{}
		if err := yaml.UnmarshalStrict(block[1], policy); err != nil {
			t.Fatalf("decode a NetworkPolicy of %s: %v", page, err)
		}
		policies[policy.Name] = policy
	}
	return policies
}

// The API server takes the NetworkPolicies of the documentation. They select the pods of
// MCPServers and of the manager, and name the ports of adapters.
func TestDocumentedNetworkPolicies(t *testing.T) {
	pods := podLabels(t, "echo")
	var manager appsv1.Deployment
	readYAML(t, filepath.Join(repository, "config", "manager", "manager.yaml"), &manager)
	policies := documentedPolicies(t, "install.md")
	for name, clients := range map[string]bool{"echo-clients": true, "slipway-manager": false} {
		t.Run(name, func(t *testing.T) {
			policy := policies[name]
			if policy == nil {
				t.Fatalf("docs/install.md has no NetworkPolicy %s", name)
			}
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy)
			if err != nil {
				t.Fatal(err)
			}
			sent := &unstructured.Unstructured{Object: object}
			sent.SetNamespace("default")
			if err := dryRun(t.Context(), sent); err != nil {
				t.Errorf("create: %v", err)
			}
			if !selects(t, &policy.Spec.PodSelector, pods) {
				t.Errorf("the policy does not select pods with the labels %v", pods)
			}
			rules := policy.Spec.Ingress
			if clients {
				if got := ports(rules[0]); !slices.Equal(got, []int32{v1alpha1.AdapterPort}) {
					t.Errorf("clients are let in at %v", got)
				}
				last := rules[len(rules)-1]
				if got := ports(last); !slices.Equal(got, []int32{v1alpha1.AdapterPeerPort}) || len(last.From) != 1 || !selects(t, last.From[0].PodSelector, pods) {
					t.Errorf("the pods of the server do not let each other in at %d alone: %v", v1alpha1.AdapterPeerPort, last)
				}
				rules = rules[1 : len(rules)-1]
			}
			if len(rules) != 1 || len(rules[0].From) != 1 || !selects(t, rules[0].From[0].PodSelector, manager.Spec.Template.Labels) {
				t.Fatalf("the manager, with the labels %v, is not let in: %v", manager.Spec.Template.Labels, rules)
			}
			if got := ports(rules[0]); !slices.Equal(got, []int32{v1alpha1.AdapterPort, v1alpha1.AdapterAdminPort}) {
				t.Errorf("the manager is let in at %v", got)
			}
		})
	}
}

// podLabels are the labels of a server's pods.
func podLabels(t *testing.T, name string) map[string]string {
	t.Helper()
	server := &v1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team-a"}}
	server.Spec.Image, server.Spec.Command = "x", []string{"x"}
	server.Spec.Transport.Type = v1alpha1.TransportStdio
	template, err := workload.PodTemplate(workload.Input{Server: server})
	if err != nil {
		t.Fatal(err)
	}
	return template.Labels
}

func selects(t *testing.T, selector *metav1.LabelSelector, of map[string]string) bool {
	t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Matches(labels.Set(of))
}

func ports(rule networkingv1.NetworkPolicyIngressRule) (numbers []int32) {
	for _, port := range rule.Ports {
		numbers = append(numbers, port.Port.IntVal)
	}
	return numbers
}
