package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/controller/status"
	"github.com/slipway-mcp/slipway/internal/issuer"
	"github.com/slipway-mcp/slipway/internal/reason"
	"github.com/slipway-mcp/slipway/internal/text"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// Issuers fetches the keys of issuers of tokens in the background.
type Issuers interface {
	// Follow replaces the sources that a server needs; none forgets it.
	Follow(server types.NamespacedName, sources []issuer.Source)
	// Get returns what is known of a source. It is false before the first answer, and never waits.
	Get(source issuer.Source) (issuer.Keys, bool)
	// Refresh asks a source again soon.
	Refresh(source issuer.Source)
}

// knownAccess is the access document that adapters were last given. Its digest is over the signed text, so
// two documents with one digest have the same content and key.
type knownAccess struct {
	isRead bool // from the ConfigMap, or made here
	digest string
	last   adapterapi.Access // with a generation only, if what else it says must not count
}

// planAccess decides what adapters are to enforce.
func (r *Reconciler) planAccess(ctx context.Context, s *state) error {
	if s.keys == nil { // what would enforce it cannot be there
		return nil
	}
	if err := r.recallAccess(ctx, s); err != nil {
		return err
	}
	keys, err := r.issuerKeys(ctx, s)
	if err != nil {
		return err
	}
	access := workload.Access(s.server, r.ClusterDomain, keys)
	if s.lacksAuth {
		access = workload.ClosedAccess(s.server)
	}
	s.dropTwins(&access)
	document, err := signAccess(s, &access)
	if err != nil {
		access = s.refuseAccess(&access, err)
		if document, err = signAccess(s, &access); err != nil {
			return fmt.Errorf("sign access that stands in for that of MCPServer %s: %w", s.name, err)
		}
	}
	s.memory.access = knownAccess{true, document.Digest, access}
	s.access, s.issuers = document, access.Issuers
	return nil
}

// signAccess signs a document that adapters take. Its generation is that of the last one if both say the
// same.
func signAccess(s *state, access *adapterapi.Access) (adapterapi.Document, error) {
	access.Generation = max(1, s.memory.access.last.Generation)
	if err := access.Check(); err != nil {
		return adapterapi.Document{}, err
	}
	document, err := access.Sign(s.keys.ring.Current)
	last := lastGeneration(s, document.Digest)
	if err != nil || document.Digest == s.memory.access.digest && last <= access.Generation {
		return document, err
	}
	access.Generation = max(last+1, s.now.UnixMilli())
	return access.Sign(s.keys.ring.Current)
}

// problemBytes leaves room for what to do in the message of a condition.
const problemBytes = 512

// refuseAccess notes that the spec leads to a document that no adapter takes, and returns what adapters enforce
// until the user corrects the spec. The last document stays in effect, unless it lets in callers that the mode of
// the spec keeps out, or the manager does not know it: then adapters refuse every client. A user who adds auth
// must not have an open server because a rule is wrong.
func (s *state) refuseAccess(refused *adapterapi.Access, err error) adapterapi.Access {
	remedy := reason.CorrectAccess
	if errors.Is(err, adapterapi.ErrAccessTooLarge) {
		remedy = reason.ShrinkAccess
	}
	access, effect := s.memory.access.last, "pods keep enforcing the last ones"
	if strictness(&access) < strictness(refused) {
		access = workload.ClosedAccess(s.server)
	}
	if workload.IsClosed(&access) {
		effect = "the manager tells them to refuse every client until you correct it"
	}
	s.accessProblem = fmt.Sprintf("adapters cannot take auth, access and audit of this spec, so %s: %s; %s", effect, text.Line(err.Error(), problemBytes), remedy)
	s.refuse(mcpv1alpha1.ReasonInvalidSpec, s.accessProblem)
	return access
}

// strictness orders documents by whom they keep out, before any rule is looked at. A document that is not known
// comes first.
func strictness(access *adapterapi.Access) int {
	switch {
	case access.Mode == adapterapi.AccessRequired:
		return 4
	case access.Mode == adapterapi.AccessNone && len(access.Rules) > 0: // everything else is forbidden
		return 3
	case access.Mode == adapterapi.AccessOfServer:
		return 2
	case access.Mode == adapterapi.AccessNone:
		return 1
	default:
		return 0
	}
}

// recallAccess reads the last document from the ConfigMap, once after the manager has started: the next
// generation is greater, a document that has not changed is not written again, and the keys of an issuer
// stay until it has been asked again. The manager ignores a document without the right signature. One that is not
// the last that the status names may be an older one that a user has put back, with withdrawn keys and
// with rules that the user has since removed: only its generation counts.
//
// The cache has the metadata of ConfigMaps only. A server whose ConfigMap the cache does not have costs no
// request, and any other one costs one for each start of the manager.
func (r *Reconciler) recallAccess(ctx context.Context, s *state) error {
	live := s.live[workload.ObjectSettings]
	if s.memory.access.isRead || live == nil || !ownedBy(live, s.server) {
		return nil
	}
	configMap, err := find(ctx, r.Live, s.in(workload.SettingsName(s.server)), &corev1.ConfigMap{})
	if err != nil {
		return err
	}
	s.memory.access.isRead = true
	if configMap == nil || !ownedBy(configMap, s.server) {
		return nil
	}
	document := []byte(configMap.Data[adapterapi.AccessFile])
	stored, err := s.keys.ring.OpenAccess(document)
	if err != nil {
		return nil //nolint:nilerr // It counts for nothing, and another one takes its place.
	}
	s.memory.access = knownAccess{true, adapterapi.SettingsDigest(document), stored}
	if published := s.server.Status.Access; published == nil || published.Digest != s.memory.access.digest {
		s.memory.access.last = adapterapi.Access{Generation: stored.Generation}
	}
	return nil
}

// mostGeneration is more than any clock brings about. An adapter that reports more is not believed, or else
// there would be no next generation.
const mostGeneration = 1 << 53

// lastGeneration is that of the newest document that is known of, other than the one with this digest. An
// adapter can know of one that the ConfigMap does not have any more.
func lastGeneration(s *state, digest string) int64 {
	last := s.memory.access.last.Generation
	for _, result := range s.results {
		if in := result.Access; in != nil && in.Digest != digest && in.Generation <= mostGeneration {
			last = max(last, in.Generation)
		}
	}
	return last
}

// issuerKeys are the keys of the issuers, by their names. As long as an issuer does not answer, it has the
// keys that it had: a manager that has just started takes no key away.
func (r *Reconciler) issuerKeys(ctx context.Context, s *state) (map[string]workload.IssuerKeys, error) {
	sources, err := r.sources(ctx, s)
	if err != nil {
		return nil, err
	}
	r.Issuers.Follow(s.name, sources)
	r.refresh(s, sources)
	keys, told := map[string]workload.IssuerKeys{}, map[string]string{}
	for _, source := range sources {
		known, asked := r.Issuers.Get(source)
		had := s.lastKeys(source)
		switch {
		case len(known.Keys) > 0:
			keys[source.Name] = workload.IssuerKeys{Issuer: known.Issuer, Keys: known.Keys}
		case len(had.Keys) > 0 && (!asked || !known.Forbidden && !known.Withdrawn): // it does not answer
			keys[source.Name] = had
		case asked:
			s.unavailable = append(s.unavailable, fmt.Sprintf("issuer %s: %s", source.Name, known.Err))
		default:
			s.unasked = append(s.unasked, source.Name)
		}
		warnings := known.Warnings
		if known.Stale && len(keys[source.Name].Keys) > 0 {
			warnings = append(slices.Clone(warnings), warningStale)
		}
		for _, warning := range warnings {
			told[reasonIssuerTrouble+" "+source.Name+" "+warning] = fmt.Sprintf("issuer %s: %s", source.Name, warning)
		}
	}
	r.tellOfIssuers(s, told)
	return keys, nil
}

const warningStale = "its keys could not be fetched for 24 hours: the last ones are still in use"

// tellOfIssuers says once what clients may have trouble with, and again if that comes back after it was over.
func (r *Reconciler) tellOfIssuers(s *state, trouble map[string]string) {
	for warning := range s.memory.warned {
		if strings.HasPrefix(warning, reasonIssuerTrouble+" ") && trouble[warning] == "" {
			s.unwarn(warning)
		}
	}
	for _, warning := range slices.Sorted(maps.Keys(trouble)) {
		r.warnOnceAs(s, warning, reasonIssuerTrouble, actionReconcile, trouble[warning])
	}
}

// dropTwins refuses issuers that tokens cannot tell apart. Of two with the same URL, the document has the
// first: a token that counts by it has everything that the spec asks of that one. Adapters would take neither,
// and none of a document in which there is no other.
func (s *state) dropTwins(access *adapterapi.Access) {
	var kept []adapterapi.AccessIssuer
	for _, one := range access.Issuers {
		i := slices.IndexFunc(kept, func(other adapterapi.AccessIssuer) bool { return other.Issuer == one.Issuer })
		switch {
		case i < 0:
			kept = append(kept, one)
		case kept[i].Name == adapterapi.KubernetesIssuer:
			s.refuse(mcpv1alpha1.ReasonInvalidSpec, fmt.Sprintf("the url of issuer %s in spec.auth.issuers is that of this cluster's own issuer, %s, whose tokens spec.auth.kubernetes accepts: remove one of them",
				one.Name, one.Issuer))
		default:
			s.refuse(mcpv1alpha1.ReasonInvalidSpec, fmt.Sprintf("the issuers %s and %s in spec.auth.issuers have the same url, %s: remove one of them", kept[i].Name, one.Name, one.Issuer))
		}
	}
	access.Issuers = kept
}

// lastKeys are those that the last document has of a source.
func (s *state) lastKeys(source issuer.Source) workload.IssuerKeys {
	for _, had := range s.memory.access.last.Issuers {
		if had.Name == source.Name && (source.Cluster || had.Issuer == source.URL) {
			return workload.IssuerKeys{Issuer: had.Issuer, Keys: had.Keys}
		}
	}
	return workload.IssuerKeys{}
}

// unknownKeyRecheck is how soon an issuer is asked again whose new key was still not among its keys.
const unknownKeyRecheck = 30 * time.Second

// refresh has issuers asked again that have signed tokens with keys which adapters do not know.
func (r *Reconciler) refresh(s *state, sources []issuer.Source) {
	for _, source := range sources {
		for _, result := range s.results {
			if result.Access != nil && slices.Contains(strings.Fields(result.Access.UnknownKeys), source.Name) {
				r.Issuers.Refresh(source)
				s.again(unknownKeyRecheck)
				break
			}
		}
	}
}

// sources are where the keys of the server's issuers come from. An issuer whose certificates are missing is
// not among them: see checkReferences.
func (r *Reconciler) sources(ctx context.Context, s *state) ([]issuer.Source, error) {
	auth := s.server.Spec.Auth
	before := s.memory.bundles
	s.memory.bundles = nil
	if auth == nil || auth.Mode == mcpv1alpha1.AuthModeServer {
		return nil, nil
	}
	var sources []issuer.Source
	if auth.Kubernetes != nil {
		sources = append(sources, issuer.Source{Name: adapterapi.KubernetesIssuer, Cluster: true})
	}
	for i := range auth.Issuers {
		given := &auth.Issuers[i]
		source := issuer.Source{Name: given.Name, URL: given.URL}
		if given.CABundle != nil {
			bundle, err := r.bundle(ctx, s.name.Namespace, *given.CABundle, before[*given.CABundle])
			if err != nil {
				return nil, err
			}
			if s.memory.bundles == nil {
				s.memory.bundles = map[mcpv1alpha1.ConfigMapKey]knownBundle{}
			}
			s.memory.bundles[*given.CABundle] = bundle
			if source.CABundle = bundle.content; bundle.content == "" {
				continue
			}
		}
		sources = append(sources, source)
	}
	return sources, nil
}

// knownBundle is what a ConfigMap had under a key when it had a version.
type knownBundle struct {
	version string
	content string
}

// bundle are the certificates in a ConfigMap; empty if they are missing. The ConfigMap is read when it has
// changed.
func (r *Reconciler) bundle(ctx context.Context, namespace string, ref mcpv1alpha1.ConfigMapKey, known knownBundle) (knownBundle, error) {
	name := types.NamespacedName{Namespace: namespace, Name: ref.Name}
	version, err := r.watches["ConfigMap"].Version(ctx, name)
	if err != nil || known.version == version {
		return known, err
	}
	content, err := r.readObject(ctx, name, "ConfigMap")
	return knownBundle{version, string(content[ref.Key])}, err
}

// checkIssuers says of which issuers there are no keys. It comes last, because the server works without them:
// tokens of the other issuers count.
func (r *Reconciler) checkIssuers(_ context.Context, s *state) error {
	if len(s.unavailable) > 0 {
		s.refuse(mcpv1alpha1.ReasonIssuerUnavailable, fmt.Sprintf("the manager has no keys of an issuer, so adapters accept none of its tokens: %s; %s; the manager asks again",
			strings.Join(s.unavailable, "; "), reason.ReachIssuer))
	}
	if len(s.unasked) > 0 {
		s.wait(mcpv1alpha1.ReasonProgressing, "asking for the keys of issuers: "+strings.Join(s.unasked, ", "))
	}
	return nil
}

// accessOf is what the status says of the document; nil if there is nothing that adapters could enforce.
func accessOf(s *state) *status.Access {
	if !workload.HasAccess(s.server) && !s.lacksAuth {
		return nil
	}
	access := &status.Access{Digest: s.access.Digest, Problem: s.accessProblem}
	for _, one := range s.issuers {
		access.Issuers = append(access.Issuers, mcpv1alpha1.IssuerStatus{Name: one.Name, Keys: int32(min(len(one.Keys), 1<<20))})
	}
	return access
}
