package controller

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// nextRevision is the number of the next revision, and whether the cache has the newest one.
// A revision is made once in a long while, so the API server is asked:
// two of one number would make the template a matter of chance.
func (r *Reconciler) nextRevision(ctx context.Context, s *state) (number int64, known bool, err error) {
	var live appsv1.ControllerRevisionList
	if err := r.Live.List(ctx, &live, client.InNamespace(s.name.Namespace), client.MatchingLabels{
		mcpv1alpha1.LabelServer: s.name.Name, mcpv1alpha1.LabelManagedBy: mcpv1alpha1.ManagedBy, // as the cache selects them
	}); err != nil {
		return 0, false, fmt.Errorf("list ControllerRevisions of MCPServer %s: %w", s.name, err)
	}
	var cached string
	if len(s.revisions) > 0 {
		number, cached = s.revisions[0].Revision, s.revisions[0].Name
	}
	ours := slices.DeleteFunc(live.Items, func(revision appsv1.ControllerRevision) bool { return !ownedBy(&revision, s.server) })
	sortRevisions(ours)
	if len(ours) == 0 {
		return number + 1, cached == "", nil
	}
	return number + 1, ours[0].Name == cached, nil
}

// keep keeps a rendered template in a new ControllerRevision, as the one to apply. Nothing
// is kept while the cache is behind.
func (r *Reconciler) keep(ctx context.Context, s *state, rendered workload.Rendered, cause string) error {
	number, known, err := r.nextRevision(ctx, s)
	if err != nil {
		return err
	}
	if !known {
		// The revision that is wanted may be there already. Applying the one that the cache
		// shows would roll the Deployment back.
		s.hold = true
		s.wait(mcpv1alpha1.ReasonProgressing, "the manager's cache does not show the newest pod template yet")
		s.again(lastLagRetry)
		return nil
	}
	if ok, err := r.isAcceptable(ctx, s, rendered.Template); err != nil || !ok {
		return err
	}
	revision, err := workload.Revision(s.server, rendered, number, cause)
	if err != nil {
		return err
	}
	err = r.Client.Create(ctx, revision)
	if apierrors.IsAlreadyExists(err) { // its name is that of its content: it is ours, and the cache is behind
		err = nil
		if !s.hasRevision(revision.Name) {
			err = r.adopt(ctx, s, revision)
		}
	}
	if err != nil {
		return fmt.Errorf("create ControllerRevision %s: %w", client.ObjectKeyFromObject(revision), err)
	}
	s.memory.revisionWrite.expect(revision.Name, s.now)
	s.rendered, s.outdated = &rendered, false
	return nil
}

// adopt makes sure that a revision which exists already is the server's own.
func (r *Reconciler) adopt(ctx context.Context, s *state, revision *appsv1.ControllerRevision) error {
	existing := &appsv1.ControllerRevision{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(revision), existing); err != nil {
		return err
	}
	if !ownedBy(existing, s.server) {
		s.refuseForeign("ControllerRevision", existing)
	}
	return nil
}

func (s *state) hasRevision(name string) bool {
	return slices.ContainsFunc(s.revisions, func(revision appsv1.ControllerRevision) bool { return revision.Name == name })
}
