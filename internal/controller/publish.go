package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/controller/status"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// publish computes the status, writes it if it has changed, and then emits Events. It also
// runs when a step has failed: the status then says so.
func (r *Reconciler) publish(ctx context.Context, s *state, failure error) error {
	if failure != nil {
		s.wait(mcpv1alpha1.ReasonRetrying, failure.Error())
	}
	observed := status.Observed{
		Server: s.server, Refusal: s.refusal, Waiting: s.waiting,
		Deployment: s.deployment(), Applied: s.applied[workload.ObjectDeployment].Generation, Template: templateName(s), Pods: s.pods, Results: s.results,
		Image: r.resolvedImage(s), PodTemplate: templateStatus(s), CatalogConfigMap: catalogConfigMap(s),
		StartTimeout: workload.StartTimeout(s.server), Processes: processesOf(s),
		Sessions: sessionsOf(s), SessionsLimit: sessionsLimit(s), Draining: drainingOf(s), Access: accessOf(s),
		URL: addressOf(s), Selector: workload.Selector(s.server),
		Now: metav1.NewTime(s.now),
	}
	if recheck := status.Recheck(observed); recheck > 0 {
		s.again(recheck)
	}
	before := s.server.Status.DeepCopy()
	next := status.Compute(observed)
	r.tellOfExposure(s)
	r.tellOfFlapping(s)
	r.tellOfRefusals(s)
	r.tellOfCrashes(s, status.Crashes(observed))
	r.tellOfDelay(s, &next)
	r.tellOfDrains(s)
	if equality.Semantic.DeepEqual(before, &next) {
		return nil
	}
	patched := s.server.DeepCopy()
	patched.Status = next
	// The lock makes sure that a status is never written over one that was computed
	// from something newer.
	patch := client.MergeFromWithOptions(s.server, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, patched, patch); err != nil {
		switch {
		case apierrors.IsNotFound(err):
			return nil // it was deleted meanwhile
		case apierrors.IsConflict(err):
			// The cache is behind. Until it shows another version, every write is a conflict.
			s.memory.statusWrite.expect(s.server.ResourceVersion, s.now)
			s.again(firstLagRetry)
			return nil
		}
		return fmt.Errorf("patch status of MCPServer %s: %w", s.name, err)
	}
	if patched.ResourceVersion == s.server.ResourceVersion {
		r.noteUnstored(ctx)
		return nil
	}
	s.memory.statusWrite.expect(s.server.ResourceVersion, s.now)
	for _, event := range transitions(before, &next) {
		r.Events.Eventf(s.server, nil, event.kind, event.reason, event.action, "%s", event.note)
	}
	return nil
}

// addressOf is the URL of the server, or empty while there is no Service of its own. A Service
// of that name may belong to another owner, and clients would send it their tokens.
func addressOf(s *state) string {
	if !s.has(workload.ObjectService) {
		return ""
	}
	return workload.URL(s.server)
}

// noteUnstored notes a status write that the API server accepted and that changed nothing.
// The API server drops fields that the CRD lacks, so every status with such a field looks
// changed. The write brings no new version that the controller could wait for.
func (r *Reconciler) noteUnstored(ctx context.Context) {
	r.idleWrites.Inc()
	r.idleWritesSeen.Do(func() {
		log.FromContext(ctx).Info("The API server stored nothing of a status: the CRD of MCPServers may be older than this manager; " +
			"apply the CRD of this version. This is logged once; see the metric slipway_status_writes_without_effect_total")
	})
}
