package operator

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// ownNamespaceFile has the namespace of the manager's pod.
const ownNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// termOf returns a function that numbers this leader: higher than all before it. That is how often the leader has changed,
// by the Lease. A manager without leader election is alone, and goes by the time of its start.
func termOf(options *manager.Options, reader client.Reader) func(context.Context) (int64, error) {
	if !options.LeaderElection {
		start := time.Now().Unix()
		return func(context.Context) (int64, error) { return start, nil }
	}
	return func(ctx context.Context) (int64, error) {
		own, err := os.ReadFile(ownNamespaceFile)
		if err != nil && options.LeaderElectionNamespace == "" {
			return 0, fmt.Errorf("find namespace of the Lease: %w", err)
		}
		name := types.NamespacedName{Namespace: cmp.Or(options.LeaderElectionNamespace, string(own)), Name: options.LeaderElectionID}
		lease := &coordinationv1.Lease{}
		if err := reader.Get(ctx, name, lease); err != nil {
			return 0, fmt.Errorf("get Lease %s: %w", name, err)
		}
		const first = 1 // a term is positive, and the first leader has made no change
		if lease.Spec.LeaseTransitions == nil {
			return first, nil
		}
		return first + int64(*lease.Spec.LeaseTransitions), nil
	}
}
