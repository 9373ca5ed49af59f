package controller

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/slipway-mcp/slipway/internal/workload"
)

// rights are what the manager may do besides what it does with the objects of servers, which the table
// of these says. A reviewer sees every new right here, in that table or in the role. There is none on
// roles, and none to create or delete pods.
var rights = map[string]map[string]string{
	"ClusterRole manager-role": {
		"authentication.k8s.io/tokenreviews":        "create",
		"authorization.k8s.io/subjectaccessreviews": "create",
		"events.k8s.io/events":                      "create patch",
		"mcp.slipway.dev/mcpservers":                "get list watch",
		"mcp.slipway.dev/mcpservers/finalizers":     "update",
		"mcp.slipway.dev/mcpservers/status":         "patch",
		"namespaces":                                "list watch",           // for their labels, with auth.require Selector
		"pods":                                      "get list patch watch", // patch for deletion costs
		// What Kubernetes lets every ServiceAccount read: the keys of ServiceAccount tokens.
		"URL /.well-known/openid-configuration": "get",
		"URL /openid/v1/jwks":                   "get",
	},
	"Role manager-role": {
		"coordination.k8s.io/leases": "create get update",
		"events":                     "create patch",
	},
}

// kept are the resources that the manager never deletes: they hold data, or clients depend on them.
var kept = []string{"secrets", "configmaps", "services", "deployments"}

func TestRights(t *testing.T) {
	want := map[string]map[string]string{"Role manager-role": rights["Role manager-role"], "ClusterRole manager-role": maps.Clone(rights["ClusterRole manager-role"])}
	for _, owned := range workload.AllOwned() {
		resource := strings.TrimPrefix(owned.Kind.Group+"/"+owned.Resource, "/")
		if other, ok := want["ClusterRole manager-role"][resource]; ok && other != owned.Verbs() {
			t.Errorf("the table has two opinions of %s: %q and %q", resource, other, owned.Verbs())
		}
		want["ClusterRole manager-role"][resource] = owned.Verbs()
		if owned.IsUnwanted != nil && slices.Contains(kept, owned.Resource) {
			t.Errorf("the table has the manager delete %s", resource)
		}
	}
	content, err := os.ReadFile("../../config/rbac/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]map[string]string{}
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		var role rbacv1.ClusterRole // a Role reads the same
		if err := decoder.Decode(&role); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		granted := map[string]string{}
		for _, rule := range role.Rules {
			if len(rule.ResourceNames) > 0 {
				t.Errorf("a rule of another shape: %+v", rule)
			}
			slices.Sort(rule.Verbs)
			for _, url := range rule.NonResourceURLs {
				granted["URL "+url] = strings.Join(rule.Verbs, " ")
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					granted[strings.TrimPrefix(group+"/"+resource, "/")] = strings.Join(rule.Verbs, " ")
				}
			}
		}
		got[role.Kind+" "+role.Name] = granted
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
}
