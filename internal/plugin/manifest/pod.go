package manifest

import (
	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// podField is a field of a pod, and where Slipway's podTemplate has it.
type podField struct {
	key  string
	into func(*mcpv1alpha1.PodTemplate) any
}

// podFields are the fields that podTemplate has by the names that they have in a pod.
var podFields = []podField{
	{"affinity", func(t *mcpv1alpha1.PodTemplate) any { return &t.Affinity }},
	{"automountServiceAccountToken", func(t *mcpv1alpha1.PodTemplate) any { return &t.AutomountServiceAccountToken }},
	{"dnsConfig", func(t *mcpv1alpha1.PodTemplate) any { return &t.DNSConfig }},
	{"dnsPolicy", func(t *mcpv1alpha1.PodTemplate) any { return &t.DNSPolicy }},
	{"hostAliases", func(t *mcpv1alpha1.PodTemplate) any { return &t.HostAliases }},
	{"hostUsers", func(t *mcpv1alpha1.PodTemplate) any { return &t.HostUsers }},
	{"nodeSelector", func(t *mcpv1alpha1.PodTemplate) any { return &t.NodeSelector }},
	{"priorityClassName", func(t *mcpv1alpha1.PodTemplate) any { return &t.PriorityClassName }},
	{"runtimeClassName", func(t *mcpv1alpha1.PodTemplate) any { return &t.RuntimeClassName }},
	{"schedulerName", func(t *mcpv1alpha1.PodTemplate) any { return &t.SchedulerName }},
	{"securityContext", func(t *mcpv1alpha1.PodTemplate) any { return &t.SecurityContext }},
	{"tolerations", func(t *mcpv1alpha1.PodTemplate) any { return &t.Tolerations }},
	{"topologySpreadConstraints", func(t *mcpv1alpha1.PodTemplate) any { return &t.TopologySpreadConstraints }},
}

// takePod takes over fields of a pod.
func (d *draft) takePod(n *node, fields []podField) {
	for _, field := range fields {
		if value := n.get(field.key); value != nil {
			d.take(value, field.into(d.podTemplate()))
		}
	}
}
