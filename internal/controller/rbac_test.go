package controller

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// What the manager may do, in one place: whoever adds a right changes this list, and
// whoever reviews the change sees it. There is no right to update or delete what holds
// data, none on pods but to read them, and none on roles.
var rights = map[string]map[string]string{
	"ClusterRole manager-role": {
		"apps/controllerrevisions":                  "create delete get list watch",
		"apps/deployments":                          "create get list patch watch",
		"authentication.k8s.io/tokenreviews":        "create",
		"authorization.k8s.io/subjectaccessreviews": "create",
		"configmaps":                                "create get list patch watch",
		"events.k8s.io/events":                      "create patch",
		"mcp.slipway.dev/mcpservers":                "get list watch",
		"mcp.slipway.dev/mcpservers/finalizers":     "update",
		"mcp.slipway.dev/mcpservers/status":         "patch",
		"pods":                                      "get list watch",
		"policy/poddisruptionbudgets":               "create delete get list patch watch",
		"secrets":                                   "create get list watch",
		"serviceaccounts":                           "create delete get list patch watch",
		"services":                                  "create get list patch watch",
	},
	"Role manager-role": {
		"coordination.k8s.io/leases": "create get update",
		"events":                     "create patch",
	},
}

func TestRights(t *testing.T) {
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
			if len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 {
				t.Errorf("a rule of another shape: %+v", rule)
			}
			slices.Sort(rule.Verbs)
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					granted[strings.TrimPrefix(group+"/"+resource, "/")] = strings.Join(rule.Verbs, " ")
				}
			}
		}
		got[role.Kind+" "+role.Name] = granted
	}
	if diff := cmp.Diff(rights, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
}
