package controller

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/controller/status"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// Why the manager rolls out a server whose spec has not changed: the values of
// AnnotationCause.
const (
	causeReferences = "ReferenceChange"
	causeUpgrade    = "AdapterUpgrade"
)

const (
	// DefaultMaxRollouts is how many servers the manager rolls out by itself at a time. A
	// rollout mostly takes less than half a minute, so that a thousand servers take less than
	// an hour. Meanwhile one in a hundred of them loses its sessions, and a bad Secret or
	// adapter shows before it has reached all.
	DefaultMaxRollouts = 10
	// rolloutPatience is how long a rollout counts. One that does not finish, because its new
	// pods do not start, does not hold up the others for longer. It is what Kubernetes takes
	// for the time in which a Deployment has to progress.
	rolloutPatience = 10 * time.Minute
	// rolloutRecheck is how soon a server looks again whether it is its turn. The end of a
	// rollout wakes one that waits, so this is only for rollouts that do not end.
	rolloutRecheck = time.Minute
)

// rollouts is the brake of rollouts that the manager starts by itself. Without it, one
// Secret that a thousand servers refer to would restart all of them in the same minute.
// It counts what it observes: a server is being rolled out if its newest revision has a
// cause and its Deployment is not done with it. So a new manager counts the same.
type rollouts struct {
	most int

	mu       sync.Mutex
	isSeeded bool
	rolling  map[types.NamespacedName]time.Time // since when
	waiting  map[types.NamespacedName]struct{}
}

// observe notes since when a server is being rolled out, or that it is not, if since is
// zero. It returns servers whose turn it may be now.
func (r *rollouts) observe(server types.NamespacedName, since, now time.Time) (next []types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, server)
	_, counted := r.rolling[server]
	if since.IsZero() || now.Sub(since) >= rolloutPatience {
		delete(r.rolling, server)
	} else {
		r.setLocked(server, since)
	}
	if _, counts := r.rolling[server]; counted && !counts {
		return r.nextLocked()
	}
	return nil
}

// nextLocked are as many of those that wait as there is room for.
func (r *rollouts) nextLocked() []types.NamespacedName {
	var next []types.NamespacedName
	for server := range r.waiting {
		if len(r.rolling)+len(next) >= r.most {
			break
		}
		next = append(next, server)
	}
	for _, server := range next {
		delete(r.waiting, server) // each waits again, if it is not its turn after all
	}
	return next
}

func (r *rollouts) setLocked(server types.NamespacedName, since time.Time) {
	if r.rolling == nil {
		r.rolling = map[types.NamespacedName]time.Time{}
	}
	r.rolling[server] = since
}

// begin counts a server that wants to be rolled out, if there is room. If there is not, it
// says how many others are being rolled out.
func (r *rollouts) begin(server types.NamespacedName, now time.Time) (others int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.rolling, func(_ types.NamespacedName, since time.Time) bool { return now.Sub(since) >= rolloutPatience })
	if _, counted := r.rolling[server]; counted || len(r.rolling) < r.most {
		r.setLocked(server, now)
		return 0, true
	}
	if r.waiting == nil {
		r.waiting = map[types.NamespacedName]struct{}{}
	}
	r.waiting[server] = struct{}{}
	return len(r.rolling), false
}

// seed counts rollouts that another manager began, before this one observes its first
// server. It counts too much: every Deployment that is not done. That is mended as each of
// these servers is observed, which happens when a manager starts.
func (r *rollouts) seed(list func() ([]types.NamespacedName, error), now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isSeeded {
		return nil
	}
	servers, err := list()
	if err != nil {
		return err
	}
	for _, server := range servers {
		r.setLocked(server, now)
	}
	r.isSeeded = true
	return nil
}

// observeRollout notes whether the server is being rolled out.
func (r *Reconciler) observeRollout(ctx context.Context, s *state) error {
	if err := r.rollouts.seed(func() ([]types.NamespacedName, error) { return r.unfinishedRollouts(ctx) }, s.now); err != nil {
		return err
	}
	r.noteRollout(s.name, s.rolloutSince(), s.now)
	return nil
}

// noteRollout notes since when a server is being rolled out, and wakes those whose turn it
// may be.
func (r *Reconciler) noteRollout(server types.NamespacedName, since, now time.Time) {
	for _, next := range r.rollouts.observe(server, since, now) {
		r.Notify(next)
	}
}

// rolloutSince is when the manager began the rollout that is not done yet; zero if there
// is none, or if the user began it.
func (s *state) rolloutSince() time.Time {
	if s.current == nil || s.revisions[0].Annotations[mcpv1alpha1.AnnotationCause] == "" {
		return time.Time{}
	}
	// With Recreate it is the rollout itself that leaves no pod ready.
	isRecreated := s.server.Spec.Rollout.Strategy == mcpv1alpha1.RolloutRecreate && workload.Replicas(s.server) > 0
	if !s.serves() && !isRecreated {
		return time.Time{}
	}
	if deployment := s.deployment(); deployment != nil && isDone(deployment) && templateOf(deployment) == templateName(s) {
		return time.Time{}
	}
	return s.revisions[0].CreationTimestamp.Time
}

// serves says whether clients would notice a rollout. One of a server that has no ready pod
// neither waits nor counts: it may be what mends the server. A pod that was deleted can be ready for
// as long as it drains, and goes with or without a rollout.
func (s *state) serves() bool {
	if workload.Replicas(s.server) == 0 {
		return false
	}
	for i := range s.pods {
		if pod := &s.pods[i]; status.PodReady(pod) && !isDeleted(pod) {
			return true
		}
	}
	return false
}

// templateOf is the name of the template that the Deployment has.
func templateOf(deployment *appsv1.Deployment) string {
	return deployment.Spec.Template.Annotations[mcpv1alpha1.AnnotationTemplate]
}

// isDone says whether all pods of a Deployment are of its newest template and available.
func isDone(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == d.Status.Replicas &&
		d.Status.AvailableReplicas == d.Status.Replicas && (d.Spec.Replicas == nil || d.Status.Replicas == *d.Spec.Replicas)
}

// takeTurn says whether a rollout that the manager starts by itself may begin. If it may
// not, the server waits, and serves with the template that it has.
func (r *Reconciler) takeTurn(s *state) bool {
	if !s.serves() {
		return true
	}
	others, ok := r.rollouts.begin(s.name, s.now)
	if !ok {
		what := "1 other server is"
		if others != 1 {
			what = fmt.Sprintf("%d other servers are", others)
		}
		s.wait(mcpv1alpha1.ReasonRolloutQueued, "waiting for its turn to be rolled out: "+what+" being rolled out")
		s.again(rolloutRecheck)
	}
	return ok
}

// unfinishedRollouts are the servers whose Deployments are not done.
func (r *Reconciler) unfinishedRollouts(ctx context.Context) ([]types.NamespacedName, error) {
	var all appsv1.DeploymentList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Deployments: %w", err)
	}
	var names []types.NamespacedName
	for i := range all.Items {
		if !isDone(&all.Items[i]) {
			names = append(names, client.ObjectKeyFromObject(&all.Items[i]))
		}
	}
	return names, nil
}
