package workload

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// Defaults are what a platform team has decided for servers whose specs leave it out. Like the adapter
// they belong to the manager and not to the spec, so a change of them is like an upgrade of it.
type Defaults struct {
	// Resources are spec.resources, as a whole.
	Resources corev1.ResourceRequirements
	// AdapterResources are spec.adapter.resources, as a whole.
	AdapterResources corev1.ResourceRequirements
	// Limits are spec.adapter.limits, each by itself.
	Limits mcpv1alpha1.AdapterLimits
}

// Fields are the fields of the spec that the defaults fill.
func (d Defaults) Fields(server *mcpv1alpha1.MCPServer) []string {
	_, fields := d.fill(server)
	return fields
}

// fill returns the server with what its spec leaves out, and the names of the fields that were
// filled. The server that is given stays as it is.
func (d Defaults) fill(server *mcpv1alpha1.MCPServer) (filled *mcpv1alpha1.MCPServer, fields []string) {
	spec := server.Spec
	if isEmpty(spec.Resources) && !isEmpty(d.Resources) {
		spec.Resources = *d.Resources.DeepCopy()
		fields = append(fields, "spec.resources")
	}
	if spec.Adapter.Resources == nil && !isEmpty(d.AdapterResources) {
		spec.Adapter.Resources = d.AdapterResources.DeepCopy()
		fields = append(fields, "spec.adapter.resources")
	}
	limits := mcpv1alpha1.AdapterLimits{}
	if spec.Adapter.Limits != nil {
		limits = *spec.Adapter.Limits
	}
	given, defaults := reflect.ValueOf(&limits).Elem(), reflect.ValueOf(*d.Limits.DeepCopy())
	filledLimits := false
	for i, field := range reflect.VisibleFields(given.Type()) {
		if given.Field(i).IsNil() && !defaults.Field(i).IsNil() {
			given.Field(i).Set(defaults.Field(i))
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			fields = append(fields, "spec.adapter.limits."+name)
			filledLimits = true
		}
	}
	if filledLimits {
		spec.Adapter.Limits = &limits
	}
	if fields == nil {
		return server, nil
	}
	copied := *server
	copied.Spec = spec
	return &copied, fields
}

func isEmpty(resources corev1.ResourceRequirements) bool {
	return equality.Semantic.DeepEqual(resources, corev1.ResourceRequirements{})
}
