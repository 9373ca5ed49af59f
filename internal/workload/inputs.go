package workload

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// hashed is what Inputs.Spec is a hash of: its JSON with sorted members and without
// those that are null, so that it depends neither on the order of Go's fields nor on
// how this version of Kubernetes' types says nothing.
//
// The hash decides whether pods are restarted when a new version of the operator takes
// over, so it must stay the same for a spec that stays the same. A field that is added
// to the API must have no place in it as long as it is left out: omitempty or omitzero,
// and no default in the schema, or else one that podSpec removes again. Tests see to
// that.
type hashed struct {
	Spec    mcpv1alpha1.MCPServerSpec `json:"spec"`
	Refresh string                    `json:"refresh,omitempty"`
}

// InputsOf names what a pod template is rendered from: the part of the spec that
// concerns pods, the annotation that asks for a refresh, and what the spec refers to.
// What this operator adds, its adapter and the cluster's domain, is not in it: they alone
// restart nothing. Nor are the keys, which adapters read again, and what is in their
// settings.
func InputsOf(server *mcpv1alpha1.MCPServer, references string) Inputs {
	return inputsAs(formatSettings, server, references)
}

// Match says whether a template that was rendered from these inputs is still the one for
// the server. They are compared by the rules that they were made by, so that a new format
// restarts nothing. A template of formatFlags has in its flags what others take from their
// settings, so it is rendered anew when that changes.
func (i Inputs) Match(server *mcpv1alpha1.MCPServer, references string) bool {
	return i == inputsAs(i.Format, server, references)
}

// MatchSpec is Match, whatever the spec refers to.
func (i Inputs) MatchSpec(server *mcpv1alpha1.MCPServer) bool { return i.Match(server, i.References) }

// The formats of inputs.
const (
	formatFlags    = 0 // all of the spec that concerns pods
	formatSettings = 1 // that without what adapters take over while they run
)

func inputsAs(format int, server *mcpv1alpha1.MCPServer, references string) Inputs {
	part := podSpec(&server.Spec)
	switch format {
	case formatFlags:
	case formatSettings:
		part = withoutSettings(part)
	default:
		return Inputs{} // of a newer operator, which nobody here can compare
	}
	content, err := canonical(hashed{part, server.Annotations[mcpv1alpha1.AnnotationRefresh]})
	if err != nil {
		// What was decoded from JSON can be encoded again. Should it ever not be so, then
		// these are inputs like no others, and rendering the template fails with the reason.
		content = []byte(err.Error())
	}
	hash := sha256.Sum256(content)
	return Inputs{Format: format, Spec: hex.EncodeToString(hash[:16]), References: references}
}

// podSpec is the part of a spec that concerns pods. Everything else has its zero
// value: how many pods there are, the Service, how the controller probes, when it
// upgrades, and when it looks at what the spec refers to, which shows in the
// references themselves.
func podSpec(spec *mcpv1alpha1.MCPServerSpec) mcpv1alpha1.MCPServerSpec {
	part := *spec // members are replaced, never written to
	part.Replicas = nil
	part.Suspend = false
	part.Service = mcpv1alpha1.Service{}
	part.Probe = mcpv1alpha1.Probe{}
	part.Adapter.Upgrade = ""
	if part.PodTemplate != nil {
		template := *part.PodTemplate
		template.OnReferenceChange = ""
		part.PodTemplate = &template
		if encoded, err := json.Marshal(template); err == nil && string(encoded) == "{}" {
			part.PodTemplate = nil
		}
	}
	return part
}

func canonical(object any) ([]byte, error) {
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var generic any
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	if err := decoder.Decode(&generic); err != nil {
		return nil, err
	}
	return json.Marshal(withoutNull(generic))
}

func withoutNull(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, member := range value {
			if member == nil {
				delete(value, key)
			} else {
				value[key] = withoutNull(member)
			}
		}
	case []any:
		for i := range value {
			value[i] = withoutNull(value[i])
		}
	}
	return value
}
