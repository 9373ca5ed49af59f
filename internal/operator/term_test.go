package operator

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Each leader has a higher term than those before it, also the second one.
func TestTerm(t *testing.T) {
	elected := manager.Options{LeaderElection: true, LeaderElectionNamespace: "system", LeaderElectionID: leaseName}
	lease := func(transitions *int32) []client.Object {
		return []client.Object{&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: leaseName}, Spec: coordinationv1.LeaseSpec{LeaseTransitions: transitions},
		}}
	}
	for name, test := range map[string]struct {
		objects []client.Object
		want    int64 // 0 for an error
	}{
		"the first leader":     {lease(nil), 1},
		"the first, in number": {lease(new(int32(0))), 1},
		"the second":           {lease(new(int32(1))), 2},
		"no Lease":             {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := termOf(&elected, fake.NewClientBuilder().WithObjects(test.objects...).Build())(t.Context())
			if got != test.want || (err != nil) != (test.want == 0) {
				t.Errorf("got %d, %v, want %d", got, err, test.want)
			}
		})
	}
	alone, err := termOf(&manager.Options{}, nil)(t.Context())
	if err != nil || alone < 1 {
		t.Errorf("without leader election: %d, %v", alone, err)
	}
}
