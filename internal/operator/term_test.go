package operator

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Each leader has a higher term than those before it, also if the Lease was deleted in between, or if the one before had
// none.
func TestTerm(t *testing.T) {
	elected := manager.Options{LeaderElection: true, LeaderElectionNamespace: "system", LeaderElectionID: leaseName}
	installed := time.Now().Add(-time.Hour)
	lease := func(created time.Time, transitions *int32) client.Object {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: leaseName, CreationTimestamp: metav1.NewTime(created)},
			Spec:       coordinationv1.LeaseSpec{LeaseTransitions: transitions},
		}
	}
	last := int64(0)
	for _, next := range []struct {
		name    string
		options manager.Options
		objects []client.Object
	}{
		{"the first leader", elected, []client.Object{lease(installed, nil)}},
		{"the second", elected, []client.Object{lease(installed, new(int32(1)))}},
		{"the tenth", elected, []client.Object{lease(installed, new(int32(9)))}},
		{"the first of another Lease", elected, []client.Object{lease(installed.Add(time.Minute), new(int32(0)))}},
		{"without leader election", manager.Options{}, nil},
		{"the first Lease after that", elected, []client.Object{lease(time.Now().Add(time.Second), nil)}},
	} {
		term, err := termOf(&next.options, fake.NewClientBuilder().WithObjects(next.objects...).Build())(t.Context())
		if err != nil || term <= last {
			t.Errorf("%s: term %d, %v, after %d", next.name, term, err, last)
		}
		last = term
	}
	if term, err := termOf(&elected, fake.NewClientBuilder().Build())(t.Context()); err == nil {
		t.Errorf("without a Lease: term %d", term)
	}
}
