package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/controller/status"
	"github.com/slipway-mcp/slipway/internal/workload"
)

const (
	// cordonTime is how long the pods that are to go get no new sessions before they are deleted. Adapters know of a
	// cordon within a second, and short sessions end meanwhile. It is no longer, because the user's word counts.
	cordonTime = 5 * time.Second
	// deletionPatience is how long the cordons last after the number was lowered. Pods are mostly deleted at once.
	deletionPatience = 10 * time.Second
)

// scaleDown is a smaller number of pods on its way. The manager keeps it in memory: one that takes over begins again.
// Adapters forget cordons that the manager does not renew.
type scaleDown struct {
	since   time.Time // when the first pod was cordoned; zero if none is
	lowered time.Time // when the smaller number was applied; zero before
	to      int32     // that number; zero before
	victims map[types.UID]bool
	// informed says that the victims were chosen when every pod had told its sessions. A manager that takes over
	// knows none at first.
	informed bool
	// accepted is the number that the API server took in a dry run; zero before. The manager cordons pods only for this
	// number. A number that the API server refuses would leave them cordoned.
	accepted int32
	// refused is the number that could not be applied although the dry run worked; zero if there is none. The manager
	// retries it without cordons.
	refused int32
}

// step decides how many pods there are to be for now, and how soon to look again; 0 means that nothing is to be waited
// for. want is the number of the spec, have that of the Deployment, and pods are those that live.
func (d *scaleDown) step(want, have int32, pods []candidate, now time.Time) (replicas int32, wait time.Duration) {
	surplus := len(pods) - int(want)
	if want == 0 || surplus <= 0 || have <= want && !d.isPending(now) {
		*d = scaleDown{} // all go; or those that were to go are gone; or they stay, after all
		return want, 0
	}
	if !d.informed {
		d.victims = nil
	}
	d.victims, d.informed = chooseVictims(pods, d.victims, surplus), allKnown(pods)
	if have <= want {
		d.to = want
		return want, deletionPatience - now.Sub(d.lowered)
	}
	if want == d.refused {
		return want, 0
	}
	if d.begins(want) {
		d.since, d.lowered = now, time.Time{}
	}
	left := cordonTime - now.Sub(d.since)
	if left > 0 && anyReady(pods, d.victims) {
		return have, left
	}
	return want, 0
}

// begins says whether a number is new: it is the first, or there are to be still fewer pods.
func (d *scaleDown) begins(want int32) bool {
	return d.since.IsZero() || !d.lowered.IsZero() && want < d.to
}

// known is the number of the Deployment. A cache that does not show the smaller number yet would have the manager raise
// it again.
func (d *scaleDown) known(have int32) int32 {
	if d.to == 0 {
		return have
	}
	return min(have, d.to)
}

// isPending says whether the smaller number was applied a moment ago, so that pods are about to be deleted.
func (d *scaleDown) isPending(now time.Time) bool {
	return !d.lowered.IsZero() && now.Sub(d.lowered) < deletionPatience
}

// anyReady says whether there is a victim that could have sessions.
func anyReady(pods []candidate, victims map[types.UID]bool) bool {
	return slices.ContainsFunc(pods, func(pod candidate) bool { return pod.ready && victims[pod.uid] })
}

// allKnown says whether the sessions of all pods that could have any are known.
func allKnown(pods []candidate) bool {
	return !slices.ContainsFunc(pods, func(pod candidate) bool { return pod.ready && pod.sessions == unknownSessions })
}

// planScale decides how many pods there are to be for now. The manager is the only one who lowers the number: it first
// has new sessions begin elsewhere, and then tells Kubernetes which pods to delete.
func (r *Reconciler) planScale(ctx context.Context, s *state) error {
	deployment, down := s.deployment(), &s.memory.scaleDown
	s.atLeast = 0
	switch {
	case s.hold: // nothing is applied
	case deployment == nil || !ownedBy(deployment, s.server) || s.refusal != nil || s.rendered == nil:
		*down = scaleDown{} // nothing is applied but the stop of all pods
	default:
		if err := r.scale(ctx, s, deployment); err != nil {
			return err
		}
	}
	s.scaled = true
	return nil
}

// scale takes one step, and has the deletion costs written that the next writes depend on.
func (r *Reconciler) scale(ctx context.Context, s *state, deployment *appsv1.Deployment) error {
	down, pods, want, have := &s.memory.scaleDown, s.candidates(), workload.Replicas(s.server), int32(1)
	if deployment.Spec.Replicas != nil {
		have = down.known(*deployment.Spec.Replicas)
	}
	replicas, wait := down.step(want, have, pods, s.now)
	if wait > 0 {
		if ok, err := r.isNumberAcceptable(ctx, s, want); err != nil || !ok {
			return err
		}
		s.again(wait)
	}
	s.atLeast = replicas
	s.lowers = replicas < have && down.lowered.IsZero() && len(down.victims) > 0
	if !s.lowers && !s.beginsRollout(want) {
		return nil
	}
	if err := r.writeCosts(ctx, s, pods, down.victims); err != nil {
		return err
	}
	s.memory.ranked = templateName(s)
	return nil
}

// isNumberAcceptable says whether the API server takes the number for which pods are cordoned.
func (r *Reconciler) isNumberAcceptable(ctx context.Context, s *state, want int32) (bool, error) {
	down := &s.memory.scaleDown
	if !down.lowered.IsZero() || down.accepted == want {
		return true, nil
	}
	if ok, err := r.isAcceptable(ctx, s, s.rendered.Template); err != nil || !ok {
		*down = scaleDown{}
		return false, err
	}
	down.accepted = want
	return true, nil
}

// settleScale records whether the smaller number was applied, and tells adapters which pods are cordoned. It lifts the
// cordons if the number could not be applied, or if a step failed before planScale had decided on the number. It keeps
// them if the API server refuses the larger number meanwhile: the policy that refuses it may be why the user asks for
// fewer pods.
func (r *Reconciler) settleScale(s *state, failure error) {
	down := &s.memory.scaleDown
	_, written := s.applied[workload.ObjectDeployment]
	switch {
	case s.lowers && written:
		down.lowered, down.to, down.refused = s.now, s.atLeast, 0
		s.again(deletionPatience)
	case s.lowers:
		*down = scaleDown{refused: workload.Replicas(s.server)}
	case failure != nil && !s.scaled:
		*down = scaleDown{}
	}
	r.tellCordons(s)
}

// tellCordons has the prober tell adapters which pods are cordoned. It changes nothing else of the last instances: after
// a step that failed, the state may lack what instances are made from.
func (r *Reconciler) tellCordons(s *state) {
	instances := slices.Clone(s.memory.instances)
	for i := range instances {
		instances[i].Cordoned = s.isCordoned(instances[i].UID, instances[i].Terminating)
	}
	if !slices.Equal(instances, s.memory.instances) {
		s.memory.instances = instances
		r.Prober.Watch(s.name, instances)
	}
}

// isCordoned says whether a pod gets no new sessions because it is about to be deleted.
func (s *state) isCordoned(pod types.UID, deleted bool) bool {
	return s.memory.scaleDown.victims[pod] && !deleted
}

// beginsRollout says whether another template is about to be applied, which replaces the pods one after another.
func (s *state) beginsRollout(want int32) bool {
	name := templateName(s)
	return want > 1 && s.server.Spec.Rollout.Strategy != mcpv1alpha1.RolloutRecreate && !s.undecided &&
		name != "" && name != s.memory.ranked && name != templateOf(s.deployment())
}

// candidates are the pods that live.
func (s *state) candidates() []candidate {
	var pods []candidate
	for i := range s.pods {
		pod := &s.pods[i]
		if isDeleted(pod) || finished(pod) {
			continue
		}
		one := candidate{
			uid: pod.UID, name: pod.Name, ready: status.PodReady(pod), isNewest: s.isNewest(pod),
			generation: generationOf(pod.Annotations), created: pod.CreationTimestamp.Time, sessions: unknownSessions,
		}
		if result, ok := s.results[pod.UID]; ok && result.Report != nil {
			one.sessions = min(result.Sessions.Open, unknownSessions)
		}
		pods = append(pods, one)
	}
	return pods
}

// writeCosts writes the deletion costs of pods where they differ. A pod without one costs 0, which is more than any
// victim does, and all that can be said of a pod that has told nothing.
func (r *Reconciler) writeCosts(ctx context.Context, s *state, pods []candidate, victims map[types.UID]bool) error {
	has := map[types.UID]string{}
	for i := range s.pods {
		has[s.pods[i].UID] = s.pods[i].Annotations[corev1.PodDeletionCost]
	}
	for _, pod := range pods {
		cost := deletionCost(pod, victims[pod.uid])
		if has[pod.uid] == cost || has[pod.uid] == "" && pod.sessions == unknownSessions && !victims[pod.uid] {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": pod.uid, "annotations": map[string]string{corev1.PodDeletionCost: cost}, // of no other pod of that name
		}})
		if err != nil {
			return fmt.Errorf("encode deletion cost of Pod %s: %w", s.in(pod.name), err)
		}
		object := metadataOf(corev1.SchemeGroupVersion.WithKind("Pod"))
		object.Namespace, object.Name = s.name.Namespace, pod.name
		err = r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(mcpv1alpha1.ManagedBy))
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
			// A policy may refuse every change of pods that were there before it. The cost is a hint; the new number or
			// the new template may be what the policy asks for.
			log.FromContext(ctx).Info("The API server refuses the deletion cost of a pod, so Kubernetes chooses without it",
				"Pod", klog.KRef(s.name.Namespace, pod.name), "reason", err.Error())
		default:
			return fmt.Errorf("patch deletion cost of Pod %s: %w", s.in(pod.name), err)
		}
	}
	return nil
}
