package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete

// Kinds of which the cache has the metadata only.
var (
	secretKind         = corev1.SchemeGroupVersion.WithKind("Secret")
	configMapKind      = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	serviceAccountKind = corev1.SchemeGroupVersion.WithKind("ServiceAccount")
)

// observe reads everything that belongs to the server, and what is known of its
// instances.
func (r *Reconciler) observe(ctx context.Context, s *state) error {
	var err error
	key := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: s.name.Namespace, Name: name}
	}
	if s.deployment, err = find(ctx, r.Client, s.name, &appsv1.Deployment{}); err != nil {
		return err
	}
	if s.service, err = find(ctx, r.Client, s.name, &corev1.Service{}); err != nil {
		return err
	}
	if s.disruption, err = find(ctx, r.Client, s.name, &policyv1.PodDisruptionBudget{}); err != nil {
		return err
	}
	if s.serviceAccount, err = r.findMetadata(ctx, serviceAccountKind, s.name); err != nil {
		return err
	}
	if s.catalog, err = r.findMetadata(ctx, configMapKind, key(workload.CatalogName(s.server))); err != nil {
		return err
	}
	if s.settingsMap, err = r.findMetadata(ctx, configMapKind, key(workload.SettingsName(s.server))); err != nil {
		return err
	}
	if s.keysSecret, err = r.findMetadata(ctx, secretKind, key(workload.KeysSecretName(s.server))); err != nil {
		return err
	}
	if err := r.observePods(ctx, s); err != nil {
		return err
	}
	if err := r.observeRevisions(ctx, s); err != nil {
		return err
	}
	s.results = r.Prober.Results(s.name)
	return nil
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

func (r *Reconciler) findMetadata(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return find(ctx, r.Metadata, key, object)
}

func (r *Reconciler) observePods(ctx context.Context, s *state) error {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(s.name.Namespace),
		client.MatchingFields{serverIndex: s.name.Name}); err != nil {
		return fmt.Errorf("list pods of MCPServer %s: %w", s.name, err)
	}
	s.pods = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		// A pod counts only if a ReplicaSet owns it, and if it is of this server and not of an
		// earlier one of the same name: a label alone is not enough.
		owner := metav1.GetControllerOf(&pod)
		return owner == nil || owner.Kind != "ReplicaSet" || pod.Annotations[mcpv1alpha1.AnnotationServerUID] != string(s.server.UID)
	})
	slices.SortFunc(s.pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return nil
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
		// Another program wrote it, or an operator of a later version. The controller makes a new one.
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
