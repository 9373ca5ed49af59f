package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// ownNamespaceFile has the namespace of the manager's pod.
const ownNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// terms numbers managers: each higher than all before it, so that adapters can tell the lists of a former one. The number
// is the time at which the Lease was created, in seconds, and how often the Lease has changed hands since. A new Lease
// counts from 0, and adapters may have lists of a leader of the one before: pods outlive the manager's namespace. The new
// Lease is younger by more seconds than the other one had leaders, and the API server's clock has both times.
//
// A manager without leader election counts itself in the same Lease, without holding it: leader election may have been
// on before, and may be turned on again.
type terms struct {
	options *manager.Options
	reader  client.Reader // of the API server
	writer  client.Writer
}

// termOf returns a function that numbers this manager.
func termOf(options *manager.Options, reader client.Reader, writer client.Writer) func(context.Context) (int64, error) {
	t := &terms{options, reader, writer}
	if options.LeaderElection {
		return t.elected
	}
	start := time.Now()
	return func(ctx context.Context) (int64, error) { return t.unelected(ctx, start) }
}

// elected is the term of the manager that holds the Lease.
func (t *terms) elected(ctx context.Context) (int64, error) {
	lease, err := t.lease(ctx)
	if err != nil {
		return 0, err
	}
	return termIn(lease), nil
}

// unelected is the term of a manager without leader election. Where it cannot find or write the Lease, as outside a
// cluster, no manager can be elected either, so the time of its start is enough.
func (t *terms) unelected(ctx context.Context, start time.Time) (int64, error) {
	lease, err := t.count(ctx, start)
	if errors.Is(err, fs.ErrNotExist) || apierrors.IsForbidden(err) {
		return start.Unix(), nil
	}
	if err != nil {
		return 0, err
	}
	return termIn(lease), nil
}

// count counts another manager in the Lease, and creates the Lease if there is none.
func (t *terms) count(ctx context.Context, start time.Time) (*coordinationv1.Lease, error) {
	lease, err := t.lease(ctx)
	switch {
	case apierrors.IsNotFound(err):
		err = t.writer.Create(ctx, lease)
	case err == nil:
		// An earlier manager that could not write the Lease used its start time as its term.
		elapsed := int64(start.Sub(lease.CreationTimestamp.Time) / time.Second)
		lease.Spec.LeaseTransitions = new(max(transitions(lease)+1, int32(min(max(elapsed, 0), math.MaxInt32/2))))
		err = t.writer.Update(ctx, lease)
	}
	if err != nil {
		return nil, fmt.Errorf("count a term without leader election: %w", err)
	}
	return lease, nil
}

// lease gets the Lease. With an error that the API server does not find it, the Lease has its name.
func (t *terms) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	own, err := os.ReadFile(ownNamespaceFile)
	if err != nil && t.options.LeaderElectionNamespace == "" {
		return nil, fmt.Errorf("find namespace of the Lease: %w", err)
	}
	name := types.NamespacedName{Namespace: cmp.Or(t.options.LeaderElectionNamespace, string(own)), Name: t.options.LeaderElectionID}
	lease := &coordinationv1.Lease{}
	if err := t.reader.Get(ctx, name, lease); err != nil {
		lease.ObjectMeta = metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}
		return lease, fmt.Errorf("get Lease %s: %w", name, err)
	}
	return lease, nil
}

func termIn(lease *coordinationv1.Lease) int64 {
	return lease.CreationTimestamp.Unix() + int64(transitions(lease))
}

func transitions(lease *coordinationv1.Lease) int32 {
	if lease.Spec.LeaseTransitions == nil {
		return 0
	}
	return *lease.Spec.LeaseTransitions
}
