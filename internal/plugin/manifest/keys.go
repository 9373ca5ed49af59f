package manifest

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// keyPlace is where labels and annotations go. Some prefixes are reserved there.
type keyPlace struct {
	name     string
	reserved []string
}

var (
	onObject  = keyPlace{name: "MCPServers"}
	onPods    = keyPlace{"pods", []string{"mcp.slipway.dev/"}}
	onService = keyPlace{"Services", []string{"mcp.slipway.dev/", "app.kubernetes.io/"}}
)

// owned are keys by which a tool knows the objects that it manages, and may delete.
var owned = []string{
	"argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "meta.helm.sh/", "helm.sh/", "app.kubernetes.io/managed-by",
}

func (d *draft) labels(n *node, place keyPlace) map[string]string {
	return d.keys(n, place, func(value string) bool { return len(validation.IsValidLabelValue(value)) == 0 })
}

// longestAnnotation is what the API allows for pods and Services.
const longestAnnotation = 16384

func (d *draft) annotations(n *node, place keyPlace) map[string]string {
	return d.keys(n, place, func(value string) bool { return len(value) <= longestAnnotation })
}

// keys goes through labels or annotations and leaves out what an API server refuses.
func (d *draft) keys(n *node, place keyPlace, isFine func(value string) bool) map[string]string {
	taken := map[string]string{}
	for _, key := range d.fields(n) {
		field := n.get(key)
		if field == nil {
			d.dropped(n.fields[key], "it is null")
			continue
		}
		value := d.scalar(field)
		if key == corev1.LastAppliedConfigAnnotation { // kubectl's own note of what is in the file
			continue
		}
		isPrefix := func(prefix string) bool { return strings.HasPrefix(key, prefix) }
		switch {
		case len(validation.IsQualifiedName(key)) > 0 || !isFine(value):
			d.dropped(field, "the key or its value is not valid, or longer than 16 KiB")
		case slices.ContainsFunc(owned, isPrefix):
			d.dropped(field, "a tool that finds its objects by this key could delete the new one")
		case slices.ContainsFunc(place.reserved, isPrefix):
			d.dropped(field, "the key is reserved for Slipway in "+place.name)
		default:
			taken[key] = value
		}
	}
	if len(taken) == 0 {
		return nil
	}
	return taken
}

// podMetadata takes over labels and annotations of pods.
func (d *draft) podMetadata(labels, annotations *node) {
	taken := &mcpv1alpha1.PodMetadata{
		Labels:      convert[mcpv1alpha1.LabelValue](d.labels(labels, onPods)),
		Annotations: convert[mcpv1alpha1.AnnotationValue](d.annotations(annotations, onPods)),
	}
	if taken.Labels != nil || taken.Annotations != nil {
		d.podTemplate().Metadata = taken
	}
}

// serviceMetadata takes over labels and annotations of the Service.
func (d *draft) serviceMetadata(labels, annotations *node) {
	d.spec.Service.Labels = convert[mcpv1alpha1.LabelValue](d.labels(labels, onService))
	d.spec.Service.Annotations = convert[mcpv1alpha1.AnnotationValue](d.annotations(annotations, onService))
}

func convert[V ~string](from map[string]string) map[string]V {
	if from == nil {
		return nil
	}
	to := make(map[string]V, len(from))
	for key, value := range from {
		to[key] = V(value)
	}
	return to
}
