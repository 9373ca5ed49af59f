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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/controller/status"
	"github.com/slipway-mcp/slipway/internal/reason"
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
	return workload.Parts{Server: s.server, Template: template, Settings: s.settings, Access: s.access}, nil
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

// send applies an object of ours. It has not, if the object turns out to be somebody
// else's, or if the API server refuses what the spec leads to.
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

// isForeign says whether an object of that name belongs to another owner. If it does, the
// server is refused.
func (r *Reconciler) isForeign(ctx context.Context, s *state, object desired) (bool, error) {
	foreign, err := r.findForeign(ctx, s, object)
	if foreign != nil {
		s.refuseForeign(object.Kind.Kind, foreign)
	}
	return foreign != nil, err
}

// findForeign returns the object of that name if it belongs to another owner, or nil. The
// cache has only objects with Slipway's label, so the API server is asked for others.
func (r *Reconciler) findForeign(ctx context.Context, s *state, object desired) (metav1.Object, error) {
	if object.live != nil {
		if ownedBy(object.live, s.server) {
			return nil, nil
		}
		return object.live, nil
	}
	if object.isOurs {
		return nil, nil
	}
	found, err := find(ctx, r.Live, s.in(object.name), metadataOf(object.Kind))
	if err != nil || found == nil || ownedBy(found, s.server) {
		return nil, err
	}
	return found, nil
}

func ownedBy(object metav1.Object, server *mcpv1alpha1.MCPServer) bool {
	return metav1.IsControlledBy(object, server)
}

func (s *state) in(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.name.Namespace, Name: name}
}

// foreignRecheck is how soon a name is looked at again that somebody else has: of
// objects without our label no event tells.
const foreignRecheck = 30 * time.Second

// leftoverRecheck is how soon it is looked whether an earlier server's object is gone.
const leftoverRecheck = time.Second

func (s *state) refuseForeign(kind string, object metav1.Object) {
	name := object.GetName()
	if s.isLeftover(object) {
		s.wait(mcpv1alpha1.ReasonProgressing, fmt.Sprintf("%s %s of an earlier MCPServer of this name is still being deleted", kind, name))
		s.again(leftoverRecheck)
		return
	}
	s.refuse(mcpv1alpha1.ReasonNameConflict, fmt.Sprintf("%s %s exists and does not belong to this MCPServer: %s; it is left as it is", kind, name, reason.DeleteOther))
	s.again(foreignRecheck)
}

// isLeftover says whether an object belongs to an earlier server of this name. It goes soon.
func (s *state) isLeftover(object metav1.Object) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && isMCPServer(owner) && owner.Name == s.name.Name
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

// applyCatalog keeps what the server offers in a ConfigMap, for people and programs. The status
// names the ConfigMap, and comes after it.
func (r *Reconciler) applyCatalog(ctx context.Context, s *state) error {
	catalog := status.Representative(s.pods, s.results)
	if catalog == nil || catalog.Stored == nil || storedCatalog(s) == catalog.Summary.Catalog.Digest {
		return nil
	}
	object := r.desired(s, workload.ObjectCatalog, workload.Parts{Server: s.server, Catalog: catalog.Stored})
	foreign, err := r.findForeign(ctx, s, object)
	if err != nil {
		return err
	}
	if foreign != nil { // the catalog is for information: the server works without it
		r.warnOnce(s, reasonCatalogConflict, actionProbe, fmt.Sprintf("ConfigMap %s exists and does not belong to this MCPServer, so the catalog is not stored: %s", object.name, reason.DeleteOther))
		s.again(foreignRecheck)
		return nil
	}
	s.unwarn(reasonCatalogConflict)
	object.isOurs = true
	return r.applyOne(ctx, s, object)
}

// storedCatalog is the digest of what the ConfigMap holds: nothing to rely on, if
// somebody has changed it since it was applied.
func storedCatalog(s *state) string {
	live := s.live[workload.ObjectCatalog]
	if live == nil || !ownedBy(live, s.server) || s.memory.isEdited(workload.ObjectCatalog, live) {
		return ""
	}
	return live.GetAnnotations()[mcpv1alpha1.AnnotationCatalogDigest]
}

// catalogConfigMap is the name of the ConfigMap with the catalog, if there is one of this server.
func catalogConfigMap(s *state) string {
	if s.has(workload.ObjectCatalog) {
		return workload.CatalogName(s.server)
	}
	return ""
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

type applied struct {
	hash    [sha256.Size]byte
	uid     types.UID
	version string
}

// isApplied says whether an object is as it was when the same was last applied, so that the API server
// is not asked to do nothing.
func (m *memory) isApplied(id workload.ObjectID, hash [sha256.Size]byte, live client.Object) bool {
	return live != nil && m.applied[id] == applied{hash, live.GetUID(), versionOf(live)}
}

// isEdited says whether an object is not as it was left.
func (m *memory) isEdited(id workload.ObjectID, live client.Object) bool {
	last, ok := m.applied[id]
	return ok && (last.uid != live.GetUID() || last.version != versionOf(live))
}

// versionOf is a text that changes when what is applied may have been changed by
// others. Neither a status nor annotations are applied to what has a generation, so
// that is enough, with the labels that it does not cover.
func versionOf(object metav1.Object) string {
	if generation := object.GetGeneration(); generation > 0 {
		return fmt.Sprint(generation, object.GetLabels())
	}
	return object.GetResourceVersion()
}

// answerOf is the metadata of what the API server answered. The client has written the answer
// into the configuration that it has applied.
func answerOf(config runtime.ApplyConfiguration) (answer metav1.PartialObjectMetadata, err error) {
	encoded, err := json.Marshal(config)
	if err == nil {
		err = json.Unmarshal(encoded, &answer)
	}
	return answer, err
}

// noteApplied remembers what was applied, and returns what the API server answered.
func (m *memory) noteApplied(id workload.ObjectID, hash [sha256.Size]byte, config runtime.ApplyConfiguration) metav1.PartialObjectMetadata {
	answer, err := answerOf(config)
	if err != nil {
		return answer // it will be applied again
	}
	if m.applied == nil {
		m.applied = map[workload.ObjectID]applied{}
	}
	m.applied[id] = applied{hash, answer.UID, versionOf(&answer)}
	return answer
}
