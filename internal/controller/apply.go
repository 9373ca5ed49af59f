package controller

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// keepsRevisions is how many rendered templates are kept: the one in use, and some
// for people to compare it with.
const keepsRevisions = 3

// desired is one object that should be there.
type desired struct {
	workload.Owned
	name   string
	config runtime.ApplyConfiguration // nil if there should be none after all
	live   client.Object              // as it was observed; nil if it is not there
	isOurs bool                       // the API server has just said that no other owner has this name
}

// desired builds one object of the server.
func (r *Reconciler) desired(s *state, id workload.ObjectID, parts workload.Parts) desired {
	owned := r.Owned[slices.IndexFunc(r.Owned, func(o workload.Owned) bool { return o.ID == id })]
	return desired{Owned: owned, name: owned.Name(s.server), config: owned.Build(parts), live: s.live[id]}
}

// partsOf are what the server's objects are built from, with a rendered pod template.
func partsOf(s *state, rendered json.RawMessage) (workload.Parts, error) {
	template := &corev1ac.PodTemplateSpecApplyConfiguration{}
	if err := json.Unmarshal(rendered, template); err != nil {
		return workload.Parts{}, fmt.Errorf("decode pod template of MCPServer %s: %w", s.name, err)
	}
	return workload.Parts{Server: s.server, Template: template, Settings: s.settings, Access: s.access, AtLeast: s.atLeast}, nil
}

// apply brings every object to what it should be. Nothing that runs is changed for a
// server that is refused.
func (r *Reconciler) apply(ctx context.Context, s *state) error {
	if s.hold {
		return nil
	}
	if s.rendered != nil {
		if err := r.applyAll(ctx, s); err != nil {
			return err
		}
	}
	if err := r.applyCatalog(ctx, s); err != nil {
		return err
	}
	return r.createSessionsSecret(ctx, s)
}

func (r *Reconciler) applyAll(ctx context.Context, s *state) error {
	parts, err := partsOf(s, s.rendered.Template)
	if err != nil {
		return err
	}
	if s.scalesAtOnce() {
		if err := r.applyOne(ctx, s, r.desired(s, workload.ObjectDeployment, parts)); err != nil {
			return err
		}
	}
	if s.refusal != nil || s.undecided {
		return nil
	}
	for _, object := range r.desiredObjects(s, parts) {
		if _, done := s.applied[object.ID]; done {
			continue // and its parts now hold what the API server answered
		}
		apply := r.applyOne
		if object.IsOptional {
			apply = r.applyOptional
		}
		if err := apply(ctx, s, object); err != nil || s.refusal != nil {
			return err
		}
	}
	return nil
}

// scalesAtOnce says whether the number of pods changes before anything else. The parts of a new spec
// change together, so only the number changes until there is a template. A user who stops a server
// wants it to stop, whatever else is wrong.
func (s *state) scalesAtOnce() bool {
	stops := workload.Replicas(s.server) == 0
	return s.deployment() != nil && (stops || s.undecided && s.refusal == nil)
}

// desiredObjects are those that one step applies, in order.
func (r *Reconciler) desiredObjects(s *state, parts workload.Parts) []desired {
	var objects []desired
	for _, owned := range r.Owned {
		if owned.Build == nil || owned.HasStep {
			continue
		}
		if object := r.desired(s, owned.ID, parts); object.config != nil {
			objects = append(objects, object)
		}
	}
	return objects
}

// isAcceptable says whether the API server takes a Deployment with this template. Nothing
// is touched for a template that it refuses: neither what runs, nor the Service, nor the
// revisions, the newest of which is what a stopped server is scaled down with.
func (r *Reconciler) isAcceptable(ctx context.Context, s *state, template json.RawMessage) (bool, error) {
	parts, err := partsOf(s, template)
	if err != nil {
		return false, err
	}
	deployment := r.desired(s, workload.ObjectDeployment, parts)
	refusal := r.Client.Apply(ctx, deployment.config, client.FieldOwner(mcpv1alpha1.ManagedBy), client.ForceOwnership, client.DryRunAll)
	if refusal == nil {
		// The answer has a resource version only if there is a Deployment of that name.
		answer, err := answerOf(deployment.config)
		deployment.isOurs = err == nil && answer.ResourceVersion == ""
	}
	if foreign, err := r.isForeign(ctx, s, deployment); err != nil || foreign {
		return false, err
	}
	return r.accepted(s, deployment, refusal)
}

// invalidRecheck is how soon the API server is asked again to take what it has refused. A
// policy may have refused it, or a port was taken, and no event says that this has changed.
const invalidRecheck = 30 * time.Second

// accepted says whether the API server has taken an object. If it refuses what the spec
// leads to, the user has to act.
func (r *Reconciler) accepted(s *state, object desired, err error) (bool, error) {
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsInvalid(err) || isUnmergeable(err):
		s.refuse(mcpv1alpha1.ReasonInvalidSpec, fmt.Sprintf("the API server refuses the %s that the spec leads to: %s", object.Kind.Kind, causes(err)))
		s.again(invalidRecheck)
		return false, nil
	default:
		return false, fmt.Errorf("apply %s %s: %w", object.Kind.Kind, s.in(object.name), err)
	}
}

// isUnmergeable says whether the API server cannot apply an object because two items of a
// list have the same key. It answers with status 500 and no reason.
func isUnmergeable(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.Status().Code == http.StatusInternalServerError &&
		strings.HasPrefix(status.Status().Message, "failed to create typed patch object")
}

// applyOne applies one object, unless it is as it was when the same was last applied.
func (r *Reconciler) applyOne(ctx context.Context, s *state, object desired) error {
	content, err := json.Marshal(object.config)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", object.Kind.Kind, object.name, err)
	}
	hash := sha256.Sum256(content)
	if object.live != nil && ownedBy(object.live, s.server) && s.memory.isApplied(object.ID, hash, object.live) {
		return nil
	}
	if sent, err := r.send(ctx, s, object); err != nil || !sent {
		return err
	}
	s.applied[object.ID] = s.memory.noteApplied(object.ID, hash, object.config)
	return nil
}

// send applies an object of ours. It returns false if another owner has the object,
// or if the API server rejects what the spec leads to.
func (r *Reconciler) send(ctx context.Context, s *state, object desired) (sent bool, err error) {
	if foreign, err := r.isForeign(ctx, s, object); err != nil || foreign {
		return false, err
	}
	if object.live != nil {
		if err := r.reclaim(ctx, s, object); err != nil {
			return false, err
		}
	}
	err = r.Client.Apply(ctx, object.config, client.FieldOwner(mcpv1alpha1.ManagedBy), client.ForceOwnership)
	return r.accepted(s, object, err)
}

// causes are the API server's words, field by field.
func causes(err error) string {
	refused, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || refused.ErrStatus.Details == nil || len(refused.ErrStatus.Details.Causes) == 0 {
		return err.Error()
	}
	var text []string
	for _, cause := range refused.ErrStatus.Details.Causes {
		text = append(text, cause.Field+": "+cause.Message)
	}
	return strings.Join(text, "; ")
}

// prune deletes what belongs to the server and is no longer wanted.
func (r *Reconciler) prune(ctx context.Context, s *state) error {
	if s.refusal != nil || s.rendered == nil || s.waiting != nil || s.hold {
		return nil // what runs may still need it
	}
	for _, object := range r.unwanted(s) {
		if !ownedBy(object, s.server) {
			continue
		}
		uid := object.GetUID()
		if err := r.Client.Delete(ctx, object, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s: %w", client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}

// unwanted is what is there and should not be.
func (r *Reconciler) unwanted(s *state) []client.Object {
	var objects []client.Object
	for _, owned := range r.Owned {
		live := s.live[owned.ID]
		if live == nil || owned.IsUnwanted == nil || !owned.IsUnwanted(workload.Parts{Server: s.server}) {
			continue
		}
		if !owned.IsUsedByPods || s.isRolledOut() {
			objects = append(objects, live)
		}
	}
	for i := keepsRevisions; i < len(s.revisions); i++ {
		objects = append(objects, &s.revisions[i])
	}
	return objects
}

// isRolledOut says whether all pods are of the template that was applied last.
func (s *state) isRolledOut() bool {
	d := s.deployment()
	_, applied := s.applied[workload.ObjectDeployment]
	return d != nil && !applied && d.Status.ObservedGeneration >= d.Generation && d.Status.Replicas == d.Status.UpdatedReplicas
}
