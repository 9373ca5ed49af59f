package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/controller/rotation"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// How long sessions live when the spec does not say, as its comments promise.
const (
	defaultIdleTimeout = 30 * time.Minute
	defaultMaxLifetime = 24 * time.Hour
)

// rotateKeys does the next step of a rotation, if it is time for one. It comes after what is signed with the current key
// has been written, so that no object is left that only a dropped key opens.
func (r *Reconciler) rotateKeys(ctx context.Context, s *state) error {
	if s.keys == nil {
		return nil
	}
	if moved, err := r.moveSessionsSecret(ctx, s); err != nil || moved {
		return err
	}
	next := rotation.Next(s.rotationFacts())
	if next.Again > 0 {
		s.again(next.Again)
	}
	if next.Blocked == "" {
		s.unwarn(reasonKeyRotationBlocked)
	} else {
		r.warnOnce(s, reasonKeyRotationBlocked, actionRotate, next.Blocked)
	}
	if next.Step == rotation.None {
		return nil
	}
	if known, err := r.knowsPods(ctx, s); err != nil || !known {
		s.again(lastLagRetry)
		return err
	}
	return r.writeKeys(ctx, s, next.Step)
}

// rotationFacts are what the next step depends on.
func (s *state) rotationFacts() *rotation.Facts {
	session := &s.server.Spec.Session
	return &rotation.Facts{
		Keys: s.keys.held(), Pods: s.podsWithKeys(), Requested: s.server.Annotations[mcpv1alpha1.AnnotationRotateKey],
		Every: orDefault(session.KeyRotation, 0), IdleTimeout: orDefault(session.IdleTimeout, defaultIdleTimeout), MaxLifetime: orDefault(session.MaxLifetime, defaultMaxLifetime),
		Now: s.now,
	}
}

// podsWithKeys are the pods whose adapters have the keys. A pod without a node has not mounted them, and will mount
// them as they are then.
func (s *state) podsWithKeys() []rotation.Pod {
	var pods []rotation.Pod
	for i := range s.pods {
		pod := &s.pods[i]
		if finished(pod) || pod.Spec.NodeName == "" && pod.Status.PodIP == "" {
			continue
		}
		result := s.results[pod.UID]
		pods = append(pods, rotation.Pod{
			Name: pod.Name, Use: result.Keys, Answered: result.Report != nil, Silent: result.Silent, Leaving: !pod.DeletionTimestamp.IsZero(),
		})
	}
	return pods
}

// knowsPods says whether the cache shows all pods of the server. A step is rare, so the API server is asked: a pod that
// the cache does not show may be the one that needs a key.
func (r *Reconciler) knowsPods(ctx context.Context, s *state) (bool, error) {
	live := &metav1.PartialObjectMetadataList{}
	live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := r.Live.List(ctx, live, client.InNamespace(s.name.Namespace), client.MatchingLabels{
		mcpv1alpha1.LabelServer: s.name.Name, mcpv1alpha1.LabelManagedBy: mcpv1alpha1.ManagedBy, // as the cache selects them
	}); err != nil {
		return false, fmt.Errorf("list pods of MCPServer %s: %w", s.name, err)
	}
	shown := make(map[types.UID]bool, len(s.pods))
	for i := range s.pods {
		shown[s.pods[i].UID] = true
	}
	for i := range live.Items {
		if pod := &live.Items[i]; isPodOf(pod, s.server) && !shown[pod.UID] {
			return false, nil
		}
	}
	return true, nil
}

// writeKeys writes a step, if the Secret is the one that the step was decided on.
func (r *Reconciler) writeKeys(ctx context.Context, s *state, step rotation.Step) error {
	name := s.in(workload.KeysSecretName(s.server))
	before := &corev1.Secret{}
	if err := r.Live.Get(ctx, name, before); err != nil {
		if apierrors.IsNotFound(err) { // the next reconciliation makes new keys
			return nil
		}
		return fmt.Errorf("get Secret %s: %w", name, err)
	}
	if before.UID != s.keys.uid || before.ResourceVersion != s.keys.version {
		s.again(lastLagRetry)
		return nil
	}
	after, change := before.DeepCopy(), workload.KeysChange{Request: s.keys.honored, Changed: s.now}
	ring := s.keys.ring
	var note string
	switch step {
	case rotation.None:
		return nil
	case rotation.Add:
		next := adapterapi.NewKey()
		ring.Accepted = append(ring.Accepted[:len(ring.Accepted):len(ring.Accepted)], next)
		change.Next, change.Request = next.ID(), cmp.Or(s.server.Annotations[mcpv1alpha1.AnnotationRotateKey], s.keys.honored)
	case rotation.Switch:
		ring = ring.WithCurrent(s.keys.next)
		note = "the key " + ring.Current.ID() + " is current now; the last one stays valid as long as a session needs it"
	case rotation.Drop:
		ring.Accepted = nil
		note = "no session needs the last key any more, so it is not valid any more"
	}
	change.Ring = ring
	workload.ChangeKeys(after, change)
	err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		s.again(lastLagRetry)
		return nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err): // a role or a policy
		r.warnOnce(s, reasonKeyRotationBlocked, actionRotate, fmt.Sprintf("the API server refuses to change Secret %s: %s", name.Name, err))
		s.again(invalidRecheck)
		return nil
	case err != nil:
		return fmt.Errorf("patch Secret %s: %w", name, err)
	}
	log.FromContext(ctx).Info("Rotating the server's key", "step", step.String(), "current", ring.Current.ID(), "accepted", len(ring.Accepted))
	if note != "" {
		r.Events.Eventf(s.server, nil, corev1.EventTypeNormal, reasonKeyRotated, actionRotate, "%s", note)
	}
	return nil
}

// moveSessionsSecret derives the key for sessions from the current key, if it is still of another one. It says whether
// that was necessary: the last key is valid until the next reconciliation finds that it was not.
func (r *Reconciler) moveSessionsSecret(ctx context.Context, s *state) (moved bool, err error) {
	live, current := s.live[workload.ObjectSessions], s.keys.ring.Current
	if live == nil || !ownedBy(live, s.server) || live.GetAnnotations()[mcpv1alpha1.AnnotationKeyID] == current.ID() {
		return false, nil
	}
	before := &corev1.Secret{}
	before.Namespace, before.Name, before.ResourceVersion = live.GetNamespace(), live.GetName(), live.GetResourceVersion()
	after := before.DeepCopy()
	want := workload.SessionsSecret(s.server, current)
	after.Annotations, after.Data = want.Annotations, want.Data
	err = r.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		s.again(lastLagRetry)
		return true, nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		r.warnOnce(s, reasonSessionsConflict, actionReconcile, fmt.Sprintf("the API server refuses to change Secret %s, so kubectl mcp sessions may not work: %s", live.GetName(), err))
		s.again(invalidRecheck)
		return false, nil // no session depends on it
	case err != nil:
		return false, fmt.Errorf("patch Secret %s: %w", client.ObjectKeyFromObject(live), err)
	}
	s.unwarn(reasonSessionsConflict)
	return true, nil
}
