package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// terminatingRecheck is how soon the controller tries again to create objects in a
// namespace that is being deleted.
const terminatingRecheck = 10 * time.Second

// checkNamespace finds out whether the namespace is being deleted, once all pods of the server are. Kubernetes deletes the
// MCPServer only after the pods are gone. The manager may lack the right to read namespaces, so it asks the API server in
// a dry run whether an object can still be created.
func (r *Reconciler) checkNamespace(ctx context.Context, s *state) error {
	if !s.isInLeavingNamespace() {
		if !s.losesAllPods() {
			return nil
		}
		s.again(terminatingRecheck)
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, GenerateName: "slipway-"}}
		if err := r.Client.Create(ctx, object, client.DryRunAll); !isTerminating(err) {
			return nil // the refusal of a quota or a policy says nothing about the namespace
		}
	}
	s.leaveNamespace()
	return nil
}

// losesAllPods says whether all pods of a server end, and were to be replaced.
func (s *state) losesAllPods() bool {
	loses := false
	for i := range s.pods {
		pod := &s.pods[i]
		switch {
		case finished(pod):
		case !isDeleted(pod):
			return false
		default:
			loses = loses || !s.ends(pod)
		}
	}
	return loses
}

// isTerminating says whether nothing can be created because the namespace is being deleted.
func isTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// leaveNamespace notes that the namespace is being deleted. Nothing can be created there any more, and the server itself
// is deleted soon.
func (s *state) leaveNamespace() {
	s.memory.leaves = s.server.UID
	s.wait(mcpv1alpha1.ReasonProgressing, "the namespace is being deleted")
	s.again(terminatingRecheck)
}

func (s *state) isInLeavingNamespace() bool {
	return s.memory.leaves != "" && s.memory.leaves == s.server.UID
}

// watchLeft has the prober look after the pods that are left with what it already has. The manager cannot recreate what
// it needs for more, such as the Secret with the keys.
func (r *Reconciler) watchLeft(s *state) {
	s.memory.instances = leaving(s.memory.instances, s.pods)
	r.Prober.Watch(s.name, s.memory.instances)
}
