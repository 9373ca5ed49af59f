package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
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
	if d.since.IsZero() || !d.lowered.IsZero() && want < d.to {
		d.since, d.lowered = now, time.Time{} // the first time, or still fewer
	}
	left := cordonTime - now.Sub(d.since)
	if left > 0 && anyReady(pods, d.victims) {
		return have, left
	}
	return want, 0
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
	before := down.victims
	s.atLeast = 0
	switch {
	case s.hold:
		return nil // nothing is applied
	case deployment == nil || !ownedBy(deployment, s.server) || s.refusal != nil || s.rendered == nil:
		*down = scaleDown{} // nothing is applied but the stop of all pods
	default:
		if err := r.scale(ctx, s, deployment); err != nil {
			return err
		}
	}
	if maps.Equal(before, down.victims) {
		return nil
	}
	return r.watchInstances(ctx, s) // adapters are told of cordons at once
}

// scale takes one step, and has the deletion costs written that the next writes depend on.
func (r *Reconciler) scale(ctx context.Context, s *state, deployment *appsv1.Deployment) error {
	down, pods, want, have := &s.memory.scaleDown, s.candidates(), workload.Replicas(s.server), int32(1)
	if deployment.Spec.Replicas != nil {
		have = down.known(*deployment.Spec.Replicas)
	}
	replicas, wait := down.step(want, have, pods, s.now)
	s.atLeast = replicas
	if wait > 0 {
		s.again(wait)
	}
	lowers := replicas < have && down.lowered.IsZero() && len(down.victims) > 0
	if !lowers && !s.beginsRollout(want) {
		return nil
	}
	if err := r.writeCosts(ctx, s, pods, down.victims); err != nil {
		return err
	}
	s.memory.ranked = templateName(s)
	if lowers {
		down.lowered, down.to = s.now, replicas
		s.again(deletionPatience)
	}
	return nil
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
