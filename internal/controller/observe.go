package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch

// observe reads everything that belongs to the server, and what is known of its
// instances.
func (r *Reconciler) observe(ctx context.Context, s *state) error {
	for _, owned := range r.Owned {
		if owned.Name == nil || owned.IsOptional && !r.optional.isServed(owned.Kind) {
			continue
		}
		live, err := find(ctx, r.readerOf(owned), s.in(owned.Name(s.server)), newObject(owned.Kind))
		if err != nil {
			return err
		}
		if live != nil {
			s.live[owned.ID] = live
		}
	}
	if err := r.observePods(ctx, s); err != nil {
		return err
	}
	if err := r.observeNamespace(ctx, s); err != nil {
		return err
	}
	if err := r.observeRevisions(ctx, s); err != nil {
		return err
	}
	s.results = r.Prober.Results(s.name)
	return nil
}

// readerOf reads objects of a kind from the cache that has them.
func (r *Reconciler) readerOf(owned workload.Owned) client.Reader {
	switch {
	case owned.IsOptional:
		return r.optional.cache
	case isMetadataOnly(owned.Kind):
		return r.Metadata
	default:
		return r.Client
	}
}

// find gets an object, or nil if there is none.
func find[T client.Object](ctx context.Context, reader client.Reader, key types.NamespacedName, object T) (T, error) {
	err := reader.Get(ctx, key, object)
	if err == nil {
		return object, nil
	}
	var none T
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	return none, fmt.Errorf("get %T %s: %w", object, key, err)
}

func (r *Reconciler) observePods(ctx context.Context, s *state) error {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(s.name.Namespace),
		client.MatchingFields{serverIndex: s.name.Name}); err != nil {
		return fmt.Errorf("list pods of MCPServer %s: %w", s.name, err)
	}
	s.pods = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !isPodOf(&pod, s.server) })
	slices.SortFunc(s.pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// isPodOf says whether a pod is of the server. It is only if a ReplicaSet owns it, and if it is not of an earlier server of
// the same name: a label alone is not enough.
func isPodOf(pod metav1.Object, server *mcpv1alpha1.MCPServer) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "ReplicaSet" && pod.GetAnnotations()[mcpv1alpha1.AnnotationServerUID] == string(server.UID)
}

func (r *Reconciler) observeRevisions(ctx context.Context, s *state) error {
	var revisions appsv1.ControllerRevisionList
	if err := r.Client.List(ctx, &revisions, client.InNamespace(s.name.Namespace),
		client.MatchingFields{serverIndex: s.name.Name}); err != nil {
		return fmt.Errorf("list ControllerRevisions of MCPServer %s: %w", s.name, err)
	}
	s.revisions = slices.DeleteFunc(revisions.Items, func(revision appsv1.ControllerRevision) bool {
		return !metav1.IsControlledBy(&revision, s.server)
	})
	sortRevisions(s.revisions)
	if len(s.revisions) == 0 {
		return nil
	}
	rendered := &workload.Rendered{}
	if err := json.Unmarshal(s.revisions[0].Data.Raw, rendered); err != nil {
		// Another program wrote it, or a manager of a later version. The controller makes a new one.
		log.FromContext(ctx).Error(err, "Ignoring a ControllerRevision that cannot be read", "controllerRevision", s.revisions[0].Name)
		return nil
	}
	s.current = rendered
	return nil
}

// sortRevisions puts the newest first, and never two in an order of chance.
func sortRevisions(revisions []appsv1.ControllerRevision) {
	slices.SortFunc(revisions, func(a, b appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(b.Revision, a.Revision), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}
