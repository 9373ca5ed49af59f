package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
	switch {
	case next.Blocked != "":
		r.warnOnce(s, reasonKeyRotationBlocked, actionRotate, next.Blocked)
		return nil
	case next.Step == rotation.None:
		s.unwarn(reasonKeyRotationBlocked)
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
		leaving := !pod.DeletionTimestamp.IsZero()
		pods = append(pods, rotation.Pod{
			Name: pod.Name, Use: result.Keys, Answered: result.Report != nil, Silent: result.Silent, Leaving: leaving,
			Unasked: pod.Status.PodIP != "" && !leaving && isUnasked(result),
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
	before, err := find(ctx, r.Live, name, &corev1.Secret{})
	if err != nil {
		return err
	}
	if before == nil || before.UID != s.keys.uid || before.ResourceVersion != s.keys.version {
		s.again(lastLagRetry)
		return nil
	}
	change, note := s.keysAfter(step)
	after := before.DeepCopy()
	workload.ChangeKeys(after, change)
	isDone, err := r.patchSecret(ctx, s, before, after, func(why string) { r.warnOnce(s, reasonKeyRotationBlocked, actionRotate, why) })
	if err != nil || !isDone {
		return err
	}
	s.unwarn(reasonKeyRotationBlocked)
	log.FromContext(ctx).Info("Rotating the server's key", "step", step.String(), "current", change.Ring.Current.ID(), "accepted", len(change.Ring.Accepted))
	if note != "" {
		r.Events.Eventf(s.server, nil, corev1.EventTypeNormal, reasonKeyRotated, actionRotate, "%s", note)
	}
	return nil
}

// keysAfter returns the keys after a step, and a note on it for users.
func (s *state) keysAfter(step rotation.Step) (change workload.KeysChange, note string) {
	change = workload.KeysChange{Ring: s.keys.ring, Request: s.keys.honored, Changed: s.now}
	switch step {
	case rotation.None:
	case rotation.Add:
		next := adapterapi.NewKey()
		change.Ring.Accepted = append(slices.Clip(change.Ring.Accepted), next)
		change.Next, change.Request = next.ID(), cmp.Or(s.server.Annotations[mcpv1alpha1.AnnotationRotateKey], s.keys.honored)
	case rotation.Switch:
		change.Ring = change.Ring.WithCurrent(s.keys.next)
		note = "the key " + change.Ring.Current.ID() + " is current now; the last one stays valid as long as a session needs it"
	case rotation.Drop:
		change.Ring.Accepted = nil
		note = "no session needs the last key any more, so it is not valid any more"
	}
	return change, note
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
	after, want := before.DeepCopy(), workload.SessionsSecret(s.server, current)
	after.Annotations, after.Data = want.Annotations, want.Data
	isRefused := false
	isDone, err := r.patchSecret(ctx, s, before, after, func(why string) {
		r.warnOnce(s, reasonSessionsConflict, actionReconcile, why+", so kubectl mcp sessions may not work")
		isRefused = true
	})
	if isDone {
		s.unwarn(reasonSessionsConflict)
	}
	return !isRefused, err // no session depends on it
}

// patchSecret patches a Secret of the server, if it still has the version of before; else the next reconciliation decides
// again. It calls refused with what a role or a policy says against it.
func (r *Reconciler) patchSecret(ctx context.Context, s *state, before, after *corev1.Secret, refused func(why string)) (isDone bool, err error) {
	err = r.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		s.again(lastLagRetry)
		return false, nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		refused(fmt.Sprintf("the API server refuses to change Secret %s: %s", before.Name, err))
		s.again(invalidRecheck)
		return false, nil
	default:
		return false, fmt.Errorf("patch Secret %s: %w", client.ObjectKeyFromObject(before), err)
	}
}
