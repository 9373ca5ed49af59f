package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/registry"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// checkSpec refuses what the API server cannot: it knows nothing of the manager's configuration, nor
// of specs that an older CRD accepted.
func (r *Reconciler) checkSpec(_ context.Context, s *state) error {
	if missing := workload.Incomplete(s.server); missing != "" {
		s.refuse(mcpv1alpha1.ReasonInvalidSpec, missing)
	}
	if exceeded := r.Bounds.Exceeded(s.server, r.Defaults); exceeded != "" {
		s.refuse(mcpv1alpha1.ReasonBoundExceeded, exceeded)
	}
	return nil
}

// planTemplate decides on the pod template: the one that was rendered before, as long
// as nothing that it was rendered from has changed, or else a new one. So a new
// version of the manager restarts nothing by itself.
func (r *Reconciler) planTemplate(ctx context.Context, s *state) error {
	s.rendered = s.current // until there is a better one
	if err := r.observeRollout(ctx, s); err != nil {
		return err
	}
	if s.refusal != nil || s.keys == nil {
		return nil
	}
	inputs := workload.InputsOf(s.server, s.references)
	switch {
	case s.current != nil && s.current.Inputs.IsNewer() && s.isPlanned():
		return r.takeOver(ctx, s, inputs)
	case s.current == nil || !s.current.Inputs.MatchSpec(s.server):
		image, ok := r.imageFor(s, inputs)
		if !ok {
			return nil
		}
		return r.renderNew(ctx, s, inputs, image, "")
	case s.current.Inputs.References != s.references:
		return r.roll(ctx, s, inputs, causeReferences)
	default:
		return r.planUpgrade(ctx, s, inputs)
	}
}

// isPlanned says whether the manager before this one has accepted the spec as it is now,
// so that the newest template is for that spec.
func (s *state) isPlanned() bool {
	accepted := meta.FindStatusCondition(s.server.Status.Conditions, mcpv1alpha1.ConditionAccepted)
	return accepted != nil && accepted.Reason == mcpv1alpha1.ReasonAccepted && accepted.ObservedGeneration == s.server.Generation
}

// takeOver keeps the template of a newer manager, and notes what it is rendered from in
// the format of this one: after a downgrade, the format alone restarts nothing, and the next
// change of the spec is noticed. What the spec refers to is taken to be unchanged.
func (r *Reconciler) takeOver(ctx context.Context, s *state, inputs workload.Inputs) error {
	rendered := *s.current
	rendered.Inputs = inputs
	return r.keep(ctx, s, rendered, "")
}

// planUpgrade decides about a template whose inputs are the same: it is outdated if this
// manager would render another one, and replaced only where that is wanted.
func (r *Reconciler) planUpgrade(ctx context.Context, s *state, inputs workload.Inputs) error {
	template, err := r.render(s, s.current.Image)
	if err != nil {
		return err
	}
	if s.outdated, err = differ(template, s.current.Template); err != nil {
		return fmt.Errorf("compare pod templates of MCPServer %s: %w", s.name, err)
	}
	if s.outdated && r.onUpgrade(s.server) == mcpv1alpha1.RolloutRestart {
		return r.roll(ctx, s, inputs, causeUpgrade)
	}
	r.warnOfOldAdapter(s)
	return r.resolveLater(ctx, s, inputs, template)
}

// onUpgrade says whether the server's pods are replaced when this manager would render them
// differently.
func (r *Reconciler) onUpgrade(server *mcpv1alpha1.MCPServer) mcpv1alpha1.RolloutPolicy {
	return cmp.Or(server.Spec.Rollout.OnOperatorUpgrade, r.OnOperatorUpgrade)
}

// roll renders the template of an unchanged spec again, when it is the server's turn.
func (r *Reconciler) roll(ctx context.Context, s *state, inputs workload.Inputs, cause string) error {
	if !r.takeTurn(s) {
		return nil
	}
	err := r.renderNew(ctx, s, inputs, s.current.Image, cause)
	if s.rendered == s.current { // nothing came of it
		r.noteRollout(s.name, s.rolloutSince(), s.now)
	}
	return err
}

// differ says whether two JSON texts mean different things: a revision's data comes
// back in another spelling.
func differ(a, b json.RawMessage) (bool, error) {
	var one, other any
	if err := errors.Join(json.Unmarshal(a, &one), json.Unmarshal(b, &other)); err != nil {
		return false, err
	}
	return !reflect.DeepEqual(one, other), nil
}

// render renders the pod template as this manager would.
func (r *Reconciler) render(s *state, image *registry.Image) (json.RawMessage, error) {
	template, err := workload.PodTemplate(r.input(s, image))
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("encode pod template of MCPServer %s: %w", s.name, err)
	}
	return encoded, nil
}

// input is what the pod template is rendered from.
func (r *Reconciler) input(s *state, image *registry.Image) workload.Input {
	return workload.Input{
		Server: s.server, Image: image, Adapter: r.Adapter, References: s.references, ClusterDomain: r.ClusterDomain, Users: r.Users, Defaults: r.Defaults,
	}
}

// renderNew renders the pod template and keeps it in a new ControllerRevision.
func (r *Reconciler) renderNew(ctx context.Context, s *state, inputs workload.Inputs, image *registry.Image, cause string) error {
	template, err := r.render(s, image)
	if unknown, ok := errors.AsType[*workload.CommandUnknownError](err); ok {
		s.refuse(mcpv1alpha1.ReasonCommandUnknown, unknown.Error())
		return nil
	}
	if err != nil {
		return err
	}
	return r.keep(ctx, s, workload.Rendered{
		Inputs: inputs, ImageName: s.server.Spec.Image, Image: image, AdapterVersion: r.Adapter.Version,
		Defaults: r.Defaults.Fields(s.server), Template: template,
	}, cause)
}
