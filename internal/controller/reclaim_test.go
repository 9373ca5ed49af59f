package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/slipway-mcp/slipway/internal/workload"
)

func wrote(manager string, operation metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, Subresource: subresource, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}
}

// Only what is ours alone is taken from others.
func TestMoveFields(t *testing.T) {
	const (
		apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
		port80        = `{"f:spec":{"f:ports":{"k:{\"port\":80}":{".":{},"f:name":{}}}}}`
		port81        = `{"f:spec":{"f:ports":{"k:{\"port\":81}":{".":{},"f:name":{}}}}}`
		cloud         = `{"f:metadata":{"f:finalizers":{"v:\"load-balancer-cleanup\"":{}}},"f:spec":{"f:loadBalancerIP":{}}}`
		both          = `{"f:metadata":{"f:finalizers":{"v:\"load-balancer-cleanup\"":{}}},"f:spec":{"f:loadBalancerIP":{},"f:ports":{"k:{\"port\":81}":{".":{},"f:name":{}}}}}`
		restart       = `{"f:spec":{"f:template":{"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/restartedAt":{}}}}}}`
	)
	ours := wrote("slipway", apply, "", port80)
	for name, test := range map[string]struct {
		id      workload.ObjectID
		entries []metav1.ManagedFieldsEntry
		want    []string // managers with their fields; nil if nothing is moved
	}{
		"no other": {workload.ObjectService, []metav1.ManagedFieldsEntry{ours}, nil},
		"an edit": {workload.ObjectService, []metav1.ManagedFieldsEntry{ours, wrote("kubectl-edit", update, "", port81)}, []string{
			`slipway {"f:spec":{"f:ports":{"k:{\"port\":80}":{".":{},"f:name":{}},"k:{\"port\":81}":{".":{},"f:name":{}}}}}`,
		}},
		"a cloud's own": {workload.ObjectService, []metav1.ManagedFieldsEntry{ours, wrote("cloud", update, "", cloud)}, nil},
		"a cloud and more": {workload.ObjectService, []metav1.ManagedFieldsEntry{ours, wrote("cloud", update, "", both)}, []string{
			`slipway {"f:spec":{"f:ports":{"k:{\"port\":80}":{".":{},"f:name":{}},"k:{\"port\":81}":{".":{},"f:name":{}}}}}`,
			"cloud " + cloud,
		}},
		"through a subresource": {workload.ObjectService, []metav1.ManagedFieldsEntry{ours, wrote("status", update, "status", port81)}, nil},
		"applied by others":     {workload.ObjectService, []metav1.ManagedFieldsEntry{ours, wrote("gitops", apply, "", port81)}, nil},
		"a restart":             {workload.ObjectDeployment, []metav1.ManagedFieldsEntry{ours, wrote("kubectl-rollout", update, "", restart)}, nil},
		"never applied":         {workload.ObjectService, []metav1.ManagedFieldsEntry{wrote("kubectl-edit", update, "", port81)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			moved, changed, err := moveFields(test.entries, claimsOf(test.id))
			if err != nil || changed != (test.want != nil) {
				t.Fatalf("changed %t, %v", changed, err)
			}
			var got []string
			for _, entry := range moved {
				got = append(got, entry.Manager+" "+entry.FieldsV1.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, _, err := moveFields([]metav1.ManagedFieldsEntry{ours, wrote("nonsense", update, "", `{`)}, claimsOf(workload.ObjectService)); err == nil {
		t.Error("nonsense was understood")
	}
}

// claimsOf are the claims of one row of the table.
func claimsOf(id workload.ObjectID) []fieldpath.Path {
	for _, owned := range workload.AllOwned() {
		if owned.ID == id {
			return owned.Claims
		}
	}
	return nil
}
