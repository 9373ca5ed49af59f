package operator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// leases are those of an API server. It notes when it creates one, and may refuse what the manager without leader
// election writes.
type leases struct {
	client.Client
	refuses bool
}

func newLeases() *leases {
	l := &leases{}
	refusal := apierrors.NewForbidden(coordinationv1.Resource("leases"), leaseName, nil)
	l.Client = fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if l.refuses {
				return refusal
			}
			object.SetCreationTimestamp(metav1.Now())
			return c.Create(ctx, object, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			if l.refuses {
				return refusal
			}
			return c.Update(ctx, object, options...)
		},
	}).Build()
	return l
}

func (l *leases) get(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: leaseName}}
	if err := client.IgnoreNotFound(l.Get(t.Context(), client.ObjectKeyFromObject(lease), lease)); err != nil {
		t.Fatal(err)
	}
	return lease
}

// elect has another manager take the Lease, as client-go does.
func (l *leases) elect(t *testing.T) {
	t.Helper()
	lease := l.get(t)
	write := func() error { return l.Create(t.Context(), lease) }
	if lease.ResourceVersion != "" {
		lease.Spec.LeaseTransitions = new(transitions(lease) + 1)
		write = func() error { return l.Update(t.Context(), lease) }
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
}

// Each manager has a higher term than those before it, whether it was elected or runs alone, and also if the Lease was
// deleted in between.
func TestTermsGrow(t *testing.T) {
	const (
		elected = "elected"
		alone   = "alone"   // without leader election
		refused = "refused" // the same, and without the right to write Leases
		deleted = "deleted" // no manager: the Lease is deleted
	)
	for name, managers := range map[string][]string{
		"elected":                               {elected, elected, elected},
		"the Lease is deleted":                  {elected, elected, elected, deleted, elected, elected},
		"alone":                                 {alone, alone, alone},
		"alone, then elected":                   {alone, alone, elected, elected},
		"election is turned off and on":         {elected, elected, alone, elected},
		"it is turned off and on again":         {elected, alone, alone, elected, alone, elected, elected},
		"the Lease is deleted while it is off":  {elected, alone, deleted, alone, elected},
		"the Lease is deleted when it is on":    {elected, alone, elected, deleted, elected, alone},
		"the manager may not write Leases":      {refused, refused},
		"it may not at first":                   {refused, alone, elected},
		"it may not for a while":                {elected, refused, alone, elected},
		"it may not, and the Lease was deleted": {elected, deleted, refused, elected},
	} {
		for _, pause := range []time.Duration{time.Second, time.Hour} {
			t.Run(name+" every "+pause.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, last := newLeases(), int64(0)
					for i, next := range managers {
						time.Sleep(pause)
						options := manager.Options{LeaderElectionNamespace: "system", LeaderElectionID: leaseName, LeaderElection: next == elected}
						switch l.refuses = next == refused; next {
						case deleted:
							if err := l.Delete(t.Context(), l.get(t)); err != nil {
								t.Fatal(err)
							}
							continue
						case elected:
							l.elect(t)
						}
						term, err := termOf(&options, l, l)(t.Context())
						if err != nil || term <= last {
							t.Errorf("%s (%d): term %d, %v, after %d", next, i, term, err, last)
						}
						last = term
					}
				})
			})
		}
	}
}

// A manager that was elected has a Lease. It waits if the API server does not show the Lease.
func TestTermWithoutALease(t *testing.T) {
	options := manager.Options{LeaderElectionNamespace: "system", LeaderElectionID: leaseName, LeaderElection: true}
	if term, err := termOf(&options, newLeases(), newLeases())(t.Context()); err == nil {
		t.Errorf("without a Lease: term %d", term)
	}
}

// A manager outside a cluster, without leader election, has no namespace for a Lease.
func TestTermOutsideACluster(t *testing.T) {
	before := time.Now().Unix()
	term, err := termOf(&manager.Options{LeaderElectionID: leaseName}, newLeases(), newLeases())(t.Context())
	if err != nil || term < before {
		t.Errorf("term %d, %v, at %d", term, err, before)
	}
}
