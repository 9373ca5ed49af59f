package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/registry"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// imagePatience is how long a server that speaks HTTP waits for what its image says, from
// when the registry was first to be asked. The server can do without: the answer only says
// under which user it runs. A server that names its command never waits.
const imagePatience = 10 * time.Second

// planTemplate decides on the pod template: the one that was rendered before, as long
// as nothing that it was rendered from has changed, or else a new one. So a new
// version of the operator restarts nothing by itself.
func (r *Reconciler) planTemplate(ctx context.Context, s *state) error {
	if s.current != nil {
		s.rendered = s.current // until there is a better one
	}
	if s.refusal != nil || s.keys == nil {
		return nil
	}
	inputs := workload.InputsOf(s.server, s.references)
	if s.current == nil || !s.current.Inputs.Match(s.server, s.references) {
		image, ok := r.imageFor(s, inputs)
		if !ok {
			return nil
		}
		return r.renderNew(ctx, s, inputs, image)
	}
	template, err := r.render(s, s.current.Image)
	if err != nil {
		return err
	}
	if s.outdated, err = differ(template, s.current.Template); err != nil {
		return fmt.Errorf("compare pod templates of MCPServer %s: %w", s.name, err)
	}
	if s.outdated && s.server.Spec.Adapter.Upgrade == mcpv1alpha1.AdapterUpgradeRolling {
		return r.renderNew(ctx, s, inputs, s.current.Image)
	}
	return nil
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

// imageFor says what the image is known to be, which may be nil, and whether it is
// time to go on. If it is not, s.undecided is set.
func (r *Reconciler) imageFor(s *state, inputs workload.Inputs) (*registry.Image, bool) {
	if s.current != nil && s.current.Inputs.MatchSpec(s.server) {
		return s.current.Image, true // the spec is the same: something that it refers to has changed
	}
	spec := &s.server.Spec
	if registry.Host(spec.Image) == "" {
		s.refuse(mcpv1alpha1.ReasonInvalidImage, fmt.Sprintf("%q is no image reference", cut(spec.Image, commandBytes)))
		return nil, false
	}
	if len(spec.Command) > 0 {
		return nil, true
	}
	lookup := r.images.lookup(s.name, inputs.Spec, ImageRequest{
		Namespace: s.name.Namespace, Image: spec.Image,
		PullSecrets: pullSecretNames(spec), ServiceAccount: spec.ServiceAccountName,
	}, s.now)
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
	return imageBefore(s), true
}

// useAnswer says what a registry's answer, which may be that there is none, leads to.
func useAnswer(s *state, lookup imageLookup) (*registry.Image, bool) {
	before := imageBefore(s)
	switch {
	case lookup.err == nil:
		return lookup.image, true
	case lookup.err.Kind == registry.Invalid || lookup.err.Kind == registry.Refused:
		s.refuse(mcpv1alpha1.ReasonInvalidImage, lookup.err.Detail)
		return nil, false
	case before != nil || !workload.NeedsImage(s.server):
		return before, true
	}
	s.wait(mcpv1alpha1.ReasonImageUnresolved, fmt.Sprintf("which program the image runs is not known yet: %s; "+
		"the registry is asked again; setting spec.command makes it unnecessary", lookup.err.Detail))
	s.again(max(lookup.next.Sub(s.now), time.Second))
	s.undecided = true
	return nil, false
}

// imageBefore is what the same image was resolved to the last time, or nil.
func imageBefore(s *state) *registry.Image {
	if s.current == nil || s.current.Image == nil || s.current.ImageName != s.server.Spec.Image {
		return nil
	}
	return s.current.Image
}

// render renders the pod template as this operator would.
func (r *Reconciler) render(s *state, image *registry.Image) (json.RawMessage, error) {
	template, err := workload.PodTemplate(workload.Input{
		Server: s.server, Image: image, Adapter: r.Adapter, References: s.references, ClusterDomain: r.ClusterDomain,
		Users: r.Users,
	})
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("encode pod template of MCPServer %s: %w", s.name, err)
	}
	return encoded, nil
}

// renderNew renders the pod template and keeps it in a new ControllerRevision.
func (r *Reconciler) renderNew(ctx context.Context, s *state, inputs workload.Inputs, image *registry.Image) error {
	template, err := r.render(s, image)
	if unknown, ok := errors.AsType[*workload.CommandUnknownError](err); ok {
		s.refuse(mcpv1alpha1.ReasonCommandUnknown, unknown.Error())
		return nil
	}
	if err != nil {
		return err
	}
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
	if ok, err := r.isAcceptable(ctx, s, template); err != nil || !ok {
		return err
	}
	rendered := workload.Rendered{
		Inputs: inputs, ImageName: s.server.Spec.Image, Image: image, AdapterVersion: r.Adapter.Version, Template: template,
	}
	revision, err := workload.Revision(s.server, rendered, number)
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
	r.revisionLag.expect(s.name, revision.Name, s.now)
	s.rendered, s.outdated = &rendered, false
	return nil
}

// nextRevision is the number of the next revision, and whether the cache knows the
// newest one. A revision is made once in a long while, so the API server is asked: two
// of one number would make the template a matter of chance.
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
	for i := range s.revisions {
		if s.revisions[i].Name == name {
			return true
		}
	}
	return false
}
