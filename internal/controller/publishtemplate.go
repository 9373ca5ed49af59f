package controller

import (
	"encoding/json"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// templateName is the name that pods of the rendered template carry.
func templateName(s *state) string {
	if s.rendered == nil {
		return ""
	}
	var template struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if json.Unmarshal(s.rendered.Template, &template) != nil {
		return "" // the youngest pod then says
	}
	return template.Metadata.Annotations[mcpv1alpha1.AnnotationTemplate]
}

// resolvedImage is what the image of the server's pods is known to be. While there is no
// template for the present spec, that is what it was before: the command of the new spec and
// the image of the old one are not what runs.
func (r *Reconciler) resolvedImage(s *state) *mcpv1alpha1.ResolvedImage {
	if s.rendered == nil {
		return nil
	}
	if s.undecided || s.hold || s.refusal != nil {
		return s.server.Status.Image
	}
	resolved := &mcpv1alpha1.ResolvedImage{Resolution: resolutionOf(r.Registries, s), Command: workload.Command(s.server, s.rendered.Image)}
	if s.rendered.Image != nil {
		resolved.Digest, resolved.User = s.rendered.Image.Digest, s.rendered.Image.User
	}
	return resolved
}

func templateStatus(s *state) *mcpv1alpha1.TemplateStatus {
	if s.rendered == nil {
		return nil
	}
	return &mcpv1alpha1.TemplateStatus{AdapterVersion: s.rendered.AdapterVersion, Outdated: s.outdated, Defaults: s.rendered.Defaults}
}
