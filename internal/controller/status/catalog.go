package status

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/internal/text"
)

// Limits of the API, in list items and bytes.
const (
	mostCommand   = 64
	argumentBytes = 1 << 10
	userBytes     = 256
)

// commandBytes bounds the command in its encoded form. What has no bound of its own is small, so
// that a status stays below 48 KiB: every client that watches MCPServers gets all of it with
// every change.
const commandBytes = 2 << 10

// Representative is the catalog that stands for the server: the one that most
// ready instances offer, and of equals the one of the youngest. It is nil if no ready
// instance has one.
func Representative(pods []corev1.Pod, results map[types.UID]prober.Result) *prober.Catalog {
	var serving []*corev1.Pod // those that have a catalog, youngest first
	numbers := map[string]int{}
	for i := range pods {
		pod := &pods[i]
		if catalog := offeredBy(pod, results); catalog != nil {
			serving = append(serving, pod)
			numbers[catalog.Summary.Catalog.Digest]++
		}
	}
	slices.SortFunc(serving, func(a, b *corev1.Pod) int { return younger(b, a) })
	var best *prober.Catalog
	for _, pod := range serving {
		catalog := results[pod.UID].Catalog
		switch {
		case best == nil || numbers[catalog.Summary.Catalog.Digest] > numbers[best.Summary.Catalog.Digest]:
			best = catalog
		case catalog.Summary.Catalog.Digest == best.Summary.Catalog.Digest && best.Stored == nil && catalog.Stored != nil:
			best = catalog // they are the same, but this one is whole
		}
	}
	return best
}

// offeredBy is what clients find at a pod; nil if they do not reach it, or if what it
// offers is not known. A catalog without a digest says only that it is too large.
func offeredBy(pod *corev1.Pod, results map[types.UID]prober.Result) *prober.Catalog {
	catalog := results[pod.UID].Catalog
	if catalog == nil || catalog.Summary.Catalog.Digest == "" || !PodReady(pod) || isDraining(pod) || isFinished(pod) {
		return nil
	}
	return catalog
}

// catalogOf is the part of the status that comes from a catalog: what the server
// offers, or offered last while no ready pod tells. The prober has bounded it.
func catalogOf(v *view) mcpv1alpha1.MCPServerStatus {
	offered := mcpv1alpha1.MCPServerStatus{ServerInfo: v.before.ServerInfo, ProtocolVersions: v.before.ProtocolVersions, Catalog: v.before.Catalog}
	if catalog := Representative(v.Pods, v.Results); catalog != nil {
		summary := &catalog.Summary
		offered = mcpv1alpha1.MCPServerStatus{ServerInfo: &summary.ServerInfo, ProtocolVersions: summary.ProtocolVersions, Catalog: &summary.Catalog}
	}
	// A copy, because the catalog is shared: the caller may decode the API server's answer
	// into the status.
	next := *offered.DeepCopy()
	if next.Catalog != nil {
		next.Catalog.ConfigMapName = v.CatalogConfigMap
	}
	return next
}

// boundImage is what an image says about itself, cut to the limits, because its author can
// write anything.
func boundImage(image *mcpv1alpha1.ResolvedImage) *mcpv1alpha1.ResolvedImage {
	if image == nil {
		return nil
	}
	bound := image.DeepCopy()
	bound.Digest, bound.User = text.Line(bound.Digest, digestBytes), text.Line(bound.User, userBytes)
	bound.Command = bounded(bound.Command, mostCommand, commandBytes, func(argument *string) { *argument = text.Fit(*argument, argumentBytes) })
	return bound
}

// bounded copies as much of the beginning of a list as there is room for. shorten does the same
// for one item.
func bounded[T any](list []T, most, room int, shorten func(*T)) []T {
	kept := slices.Clone(list[:min(len(list), most)])
	for i := range kept {
		shorten(&kept[i])
		encoded, err := json.Marshal(kept[i])
		if room -= len(encoded); err != nil || room < 0 {
			return kept[:i]
		}
	}
	return kept
}
