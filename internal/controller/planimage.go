package controller

import (
	"context"
	"fmt"
	"time"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/reason"
	"github.com/slipway-mcp/slipway/internal/registry"
	"github.com/slipway-mcp/slipway/internal/text"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// imagePatience is how long a server that speaks HTTP waits for what its image says, from
// when the registry was first to be asked. The server can do without: the answer only says
// under which user it runs. A server that names its command never waits.
const imagePatience = 10 * time.Second

// shownBytes is how much of an image's name or user a message has.
const shownBytes = 1 << 10

// imageFor returns what the image of a new spec is known to be, which may be nil, and
// whether it is time to go on. If it is not, s.undecided is set or the server is refused.
func (r *Reconciler) imageFor(s *state, inputs workload.Inputs) (*registry.Image, bool) {
	spec := &s.server.Spec
	if registry.Host(spec.Image) == "" {
		s.refuse(mcpv1alpha1.ReasonInvalidImage, fmt.Sprintf("%q is no image reference", text.Cut(spec.Image, shownBytes)))
		return nil, false
	}
	if len(spec.Command) > 0 {
		return nil, true
	}
	if why := r.Registries.Forbids(spec.Image); why != "" {
		return withoutRegistry(s, why)
	}
	lookup := r.lookup(s, inputs)
	if lookup.done || lookup.err != nil { // the last error stands while it is tried again
		return useAnswer(s, lookup)
	}
	if workload.NeedsImage(s.server) {
		s.wait(mcpv1alpha1.ReasonProgressing, "asking the registry which program the image runs")
		s.undecided = true
		return nil, false
	}
	if rest := imagePatience - s.now.Sub(lookup.since); rest > 0 {
		s.wait(mcpv1alpha1.ReasonProgressing, "asking the registry what the image says of itself")
		s.again(rest)
		s.undecided = true
		return nil, false
	}
	return imageBefore(s, lookup), true
}

func (r *Reconciler) lookup(s *state, inputs workload.Inputs) imageLookup {
	spec := &s.server.Spec
	return r.images.lookup(s.name, inputs.Hash, ImageRequest{
		Namespace: s.name.Namespace, Image: spec.Image,
		PullSecrets: pullSecretNames(spec), ServiceAccount: spec.ServiceAccountName,
	}, s.now)
}

// withoutRegistry is imageFor where the manager may not ask the registry. An earlier answer
// still counts.
func withoutRegistry(s *state, why string) (*registry.Image, bool) {
	before := imageBefore(s, imageLookup{})
	if before == nil && workload.NeedsImage(s.server) {
		s.refuse(mcpv1alpha1.ReasonCommandUnknown, fmt.Sprintf("spec.command was left out and %s: %s", why, reason.SetCommand))
		return nil, false
	}
	return before, true
}

// useAnswer says what a registry's answer, which may be that there is none, leads to. Every
// error is looked at again: the user may push the image, and an address may change.
func useAnswer(s *state, lookup imageLookup) (*registry.Image, bool) {
	problem := lookup.err
	if problem == nil {
		return lookup.image, true
	}
	isWrong := problem.Kind == registry.Invalid || problem.Kind == registry.Refused
	if before := imageBefore(s, lookup); !isWrong && (before != nil || !workload.NeedsImage(s.server)) {
		return before, true
	}
	if lookup.done { // otherwise the answer brings the next look
		s.again(max(lookup.next.Sub(s.now), time.Second))
	}
	s.undecided = true
	text := fmt.Sprintf("which program the image runs is not known: %s; %s; the registry is asked again", problem.Detail, adviceFor(problem.Kind))
	switch {
	case isWrong:
		s.refuse(mcpv1alpha1.ReasonInvalidImage, problem.Detail)
	case problem.Kind != registry.Unavailable && lookup.fails > 1: // the second answer is no mishap
		s.refuse(mcpv1alpha1.ReasonImageUnresolved, text)
	default:
		s.wait(mcpv1alpha1.ReasonImageUnresolved, text)
	}
	return nil, false
}

// adviceFor tells the user what helps against a registry's error.
func adviceFor(kind registry.Kind) reason.Remedy {
	switch kind {
	case registry.NotFound:
		return reason.PushImage
	case registry.Unauthorized:
		return reason.CheckCredentials
	default:
		return reason.SkipRegistry
	}
}

// imageBefore is what the same image was resolved to the last time, or nil.
func imageBefore(s *state, lookup imageLookup) *registry.Image {
	if s.current == nil || s.current.Image == nil || s.current.ImageName != s.server.Spec.Image {
		return lookup.before
	}
	return s.current.Image
}

// resolveLater goes on asking for an image that was not resolved when the pods were
// rendered. If the answer changes nothing of the pods, it is noted. If it does, the pods stay
// as they are until the user changes something: their user must not depend on when a registry
// answers. The template is what this manager renders without the answer.
func (r *Reconciler) resolveLater(ctx context.Context, s *state, inputs workload.Inputs, template []byte) error {
	if resolutionOf(r.Registries, s) != mcpv1alpha1.ImageUnresolved {
		s.unwarn(reasonImageLate)
		return nil
	}
	lookup := r.lookup(s, inputs)
	if lookup.image == nil {
		if lookup.done {
			s.again(max(lookup.next.Sub(s.now), time.Second))
		}
		return nil
	}
	resolved, err := r.render(s, lookup.image)
	if err != nil {
		return err
	}
	differs, err := differ(template, resolved)
	if err != nil {
		return fmt.Errorf("compare pod templates of MCPServer %s: %w", s.name, err)
	}
	if !differs {
		rendered, isOutdated := *s.current, s.outdated
		rendered.Image = lookup.image
		err := r.keep(ctx, s, rendered, "")
		s.outdated = isOutdated
		return err
	}
	s.outdated = true
	if !workload.UserDependsOnImage(r.input(s, lookup.image)) {
		return nil // the launcher starts the image's command from then on, which users need not know
	}
	r.warnOnce(s, reasonImageLate, actionReconcile, fmt.Sprintf("the registry answered after the pods were rendered, so they run as user 1000 and not as the image says (user %q): "+
		"the next change of the spec takes it over, or a new value of the annotation %s", text.Cut(lookup.image.User, shownBytes), mcpv1alpha1.AnnotationRefresh))
	return nil
}

// resolutionOf says where the program and the user of the rendered pods come from.
func resolutionOf(registries registry.Policy, s *state) mcpv1alpha1.ImageResolution {
	switch {
	case s.rendered.Image != nil:
		return mcpv1alpha1.ImageResolved
	case len(s.server.Spec.Command) > 0 || registries.Forbids(s.server.Spec.Image) != "":
		return mcpv1alpha1.ImageNotAsked
	default:
		return mcpv1alpha1.ImageUnresolved
	}
}
