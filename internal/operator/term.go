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

// termOf returns a function that numbers this leader: higher than all before it. The number is the time at which the Lease
// was created, in seconds, and how often the Lease has changed hands since. A manager without leader election is alone, and
// goes by the time of its start.
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
		// A new Lease counts from 0, and adapters may have lists of a leader of the one before: pods outlive the operator's
		// namespace. The new Lease is younger by more seconds than the other one had leaders, and the API server's clock has
		// both times.
		term := lease.CreationTimestamp.Unix()
		if lease.Spec.LeaseTransitions != nil {
			term += int64(*lease.Spec.LeaseTransitions)
		}
		return term, nil
	}
}
