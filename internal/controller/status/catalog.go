package status

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/prober"
)

// Limits of the API, in list items and characters.
const (
	mostTools            = 128
	mostOthers           = 64 // prompts, resources, resource templates
	mostProtocolVersions = 16
	mostExtensions       = 32
	mostCommand          = 512

	nameRunes         = 256
	versionRunes      = 128
	protocolRunes     = 32
	descriptionRunes  = 512
	uriRunes          = 2048
	instructionsRunes = 4096
	argumentRunes     = 32768
)

// listBytes bounds each list in its encoded form, so that the whole object is well
// below what etcd takes even if every character of it is long.
const listBytes = 128 << 10

// Representative is the catalogue that stands for the server: the one that most
// ready instances offer, and of equals the one of the youngest. It is nil if no ready
// instance has one.
func Representative(pods []corev1.Pod, results map[types.UID]prober.Result) *prober.Catalog {
	var serving []*corev1.Pod // those that have a catalogue, youngest first
	numbers := map[string]int{}
	for i := range pods {
		pod := &pods[i]
		if catalog := offeredBy(pod, results); catalog != nil {
			serving = append(serving, pod)
			numbers[catalog.Summary.Digest]++
		}
	}
	slices.SortFunc(serving, func(a, b *corev1.Pod) int { return younger(b, a) })
	var best *prober.Catalog
	for _, pod := range serving {
		catalog := results[pod.UID].Catalog
		switch {
		case best == nil || numbers[catalog.Summary.Digest] > numbers[best.Summary.Digest]:
			best = catalog
		case catalog.Summary.Digest == best.Summary.Digest && best.Stored == nil && catalog.Stored != nil:
			best = catalog // they are the same, but this one is whole
		}
	}
	return best
}

// offeredBy is what clients find at a pod; nil if they do not reach it, or if what it
// offers is not known. A catalogue without a digest says only that it is too large.
func offeredBy(pod *corev1.Pod, results map[types.UID]prober.Result) *prober.Catalog {
	catalog := results[pod.UID].Catalog
	if catalog == nil || catalog.Summary.Digest == "" || !PodReady(pod) || isDraining(pod) || isFinished(pod) {
		return nil
	}
	return catalog
}

// catalogOf is the part of the status that comes from a catalogue: what the server
// offers, or offered last while nobody can tell.
func catalogOf(v *view) mcpv1alpha1.MCPServerStatus {
	catalog := Representative(v.Pods, v.Results)
	if catalog == nil {
		last := mcpv1alpha1.MCPServerStatus{
			ServerInfo: v.before.ServerInfo, Tools: v.before.Tools, Prompts: v.before.Prompts, Resources: v.before.Resources,
			ResourceTemplates: v.before.ResourceTemplates, Counts: v.before.Counts, CatalogDigest: v.before.CatalogDigest,
		}
		return *last.DeepCopy()
	}
	// Copies, because the catalogue is shared: whoever gets this status may decode
	// the API server's answer into it.
	summary := &catalog.Summary
	offered := mcpv1alpha1.MCPServerStatus{
		ServerInfo: &summary.ServerInfo, Counts: &summary.Counts, CatalogDigest: cut(summary.Digest, digestRunes),
		Tools: bounded(summary.Tools, mostTools, func(t *mcpv1alpha1.Tool) {
			t.Name, t.Title, t.Description = cut(t.Name, nameRunes), cut(t.Title, nameRunes), cut(t.Description, descriptionRunes)
		}),
		Prompts: bounded(summary.Prompts, mostOthers, func(p *mcpv1alpha1.Prompt) {
			p.Name, p.Title, p.Description = cut(p.Name, nameRunes), cut(p.Title, nameRunes), cut(p.Description, descriptionRunes)
		}),
		Resources: bounded(summary.Resources, mostOthers, func(r *mcpv1alpha1.Resource) {
			r.URI, r.Name = cut(r.URI, uriRunes), cut(r.Name, nameRunes)
		}),
		ResourceTemplates: bounded(summary.ResourceTemplates, mostOthers, func(r *mcpv1alpha1.ResourceTemplate) {
			r.URITemplate, r.Name = cut(r.URITemplate, uriRunes), cut(r.Name, nameRunes)
		}),
	}
	next := *offered.DeepCopy()
	boundServerInfo(next.ServerInfo)
	return next
}

func boundServerInfo(info *mcpv1alpha1.ServerInfo) {
	info.Name, info.Title = cut(info.Name, nameRunes), cut(info.Title, nameRunes)
	info.Version, info.ProtocolVersion = cut(info.Version, versionRunes), cut(info.ProtocolVersion, protocolRunes)
	info.Instructions = cut(info.Instructions, instructionsRunes)
	info.ProtocolVersions = bounded(info.ProtocolVersions, mostProtocolVersions, func(version *string) { *version = cut(*version, protocolRunes) })
	if info.Capabilities != nil {
		extensions := bounded(info.Capabilities.Extensions, mostExtensions, func(name *string) { *name = cut(*name, nameRunes) })
		slices.Sort(extensions)
		info.Capabilities.Extensions = slices.Compact(extensions) // to the API it is a set
	}
}

// boundImage is what an image says of itself, within the limits: it was written by
// whoever made the image.
func boundImage(image *mcpv1alpha1.ResolvedImage) *mcpv1alpha1.ResolvedImage {
	if image == nil {
		return nil
	}
	bound := image.DeepCopy()
	bound.Digest, bound.User = cut(bound.Digest, digestRunes), cut(bound.User, nameRunes)
	bound.Command = bounded(bound.Command, mostCommand, func(argument *string) { *argument = cut(*argument, argumentRunes) })
	return bound
}

// bounded copies as much of the beginning of a list as the API server takes. shorten
// does the same for one item.
func bounded[T any](list []T, most int, shorten func(*T)) []T {
	kept := slices.Clone(list[:min(len(list), most)])
	size := 0
	for i := range kept {
		shorten(&kept[i])
		encoded, err := json.Marshal(kept[i])
		if size += len(encoded); err != nil || size > listBytes {
			return kept[:i]
		}
	}
	return kept
}
