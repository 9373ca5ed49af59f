package workload

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// Inputs are what a pod template is rendered from. As long as they mean the same, a
// template that was rendered once stays in use, whatever a newer manager would render.
// They are in a ControllerRevision, so their members are never renamed.
type Inputs struct {
	// Format says how Content is written and how References is computed: see formats.
	Format int `json:"format"`
	// Content is the part of the spec that concerns pods, with the annotation that asks for
	// a refresh, as canonical JSON. A later manager can translate it. It could not translate
	// a hash.
	Content json.RawMessage `json:"content"`
	// Hash is that of Content. Equal hashes save a comparison by meaning.
	Hash string `json:"hash"`
	// References is the keyed digest of what the spec refers to. What it is a digest of is
	// secret, so it cannot be translated: a new way to compute it needs the old one for
	// revisions of an older format.
	References string `json:"references,omitempty"`
}

// content is what Inputs.Content holds.
//
// It decides whether pods are restarted when a new version of the manager takes over, so
// it must mean the same for a spec that stays the same. A field that is added to the API
// has no place in it while the field is left out: omitempty or omitzero, and no default in
// the schema, or else one that podSpec removes again. A field that is renamed or moved
// needs a step in formats. Tests fail if either is forgotten.
type content struct {
	Spec    mcpv1alpha1.MCPServerSpec `json:"spec"`
	Refresh string                    `json:"refresh,omitempty"`
}

// formats are the steps from each format to the next: formats[0] turns content of format 1
// into content of format 2. A step does to the stored JSON what the API did to its fields,
// for instance rename a member. Steps are never removed.
type formats []func(content map[string]any)

// history are the steps so far.
var history = formats{toFormat2}

// current is the number of the format that the steps lead to.
func (f formats) current() int { return len(f) + 1 }

// translate returns inputs' content in the current format.
func (f formats) translate(inputs Inputs) ([]byte, error) {
	if inputs.Format < 1 || inputs.Format > f.current() {
		return nil, fmt.Errorf("translate inputs of a pod template: format %d is not known", inputs.Format)
	}
	members := map[string]any{}
	if err := decodeExactly(inputs.Content, &members); err != nil {
		return nil, fmt.Errorf("decode inputs of a pod template: %w", err)
	}
	for _, step := range f[inputs.Format-1:] {
		step(members)
	}
	return canonical(members)
}

// InputsOf returns what the server's pod template is rendered from: the part of the spec
// that concerns pods, the annotation that asks for a refresh, and what the spec refers to.
// Left out is what this manager adds, which is its adapter and the cluster's domain: a
// change of these alone restarts nothing. Left out are also the keys, which adapters read
// again, and what is in the adapters' settings.
func InputsOf(server *mcpv1alpha1.MCPServer, references string) Inputs {
	part := withoutSettings(podSpec(&server.Spec))
	text, err := canonical(content{part, server.Annotations[mcpv1alpha1.AnnotationRefresh]})
	if err != nil {
		// What was decoded from JSON can be encoded again. If it ever cannot, these inputs
		// are like no others, and rendering the template fails with the reason.
		text = fmt.Appendf(nil, "%q", err.Error())
	}
	hash := sha256.Sum256(text)
	return Inputs{Format: history.current(), Content: text, Hash: hex.EncodeToString(hash[:16]), References: references}
}

// MatchSpec says whether a template that was rendered from these inputs is still the one
// for the server, whatever the spec refers to.
func (i Inputs) MatchSpec(server *mcpv1alpha1.MCPServer) bool {
	return i.means(InputsOf(server, i.References), history)
}

// means says whether the content of inputs of any known format means the same as that of
// inputs of the current format.
func (i Inputs) means(now Inputs, steps formats) bool {
	if i.Format == now.Format && i.Hash == now.Hash {
		return true
	}
	translated, err := steps.translate(i)
	return err == nil && bytes.Equal(translated, now.Content)
}

// IsNewer says whether a newer manager made the inputs, in a format that this one cannot
// compare.
func (i Inputs) IsNewer() bool { return i.Format > history.current() }

// podSpec is the part of a spec that concerns pods. Everything else has its zero
// value: how many pods there are, the Service, how the manager checks them, when it rotates
// their key, and when and how they are replaced. What the spec refers to shows in the references themselves.
// Spellings of the same thing become one.
func podSpec(spec *mcpv1alpha1.MCPServerSpec) mcpv1alpha1.MCPServerSpec {
	part := *spec // members are replaced, never written to
	part.Replicas = nil
	part.Suspend = false
	part.Service = mcpv1alpha1.Service{}
	part.Verification = mcpv1alpha1.Verification{}
	part.Session.KeyRotation = nil
	part.Rollout = mcpv1alpha1.Rollout{}
	if part.PodTemplate != nil {
		if encoded, err := json.Marshal(part.PodTemplate); err == nil && string(encoded) == "{}" {
			part.PodTemplate = nil
		}
	}
	if part.Transport.Sessions == mcpv1alpha1.ServerSessionsAuto {
		part.Transport.Sessions = ""
	}
	if stdio := part.Transport.Stdio; stdio != nil && (stdio.Framing == "" || stdio.Framing == mcpv1alpha1.FramingNewline) {
		part.Transport.Stdio = nil
	}
	if part.Adapter.Limits != nil {
		limits := *part.Adapter.Limits
		limits.Body, limits.Line, limits.Replay = inBytes(limits.Body), inBytes(limits.Line), inBytes(limits.Replay)
		part.Adapter.Limits = &limits
	}
	return part
}

// inBytes spells a number of bytes in the one way that inputs have.
func inBytes(size *resource.Quantity) *resource.Quantity {
	if size == nil {
		return nil
	}
	return resource.NewQuantity(size.Value(), resource.BinarySI)
}

// canonical encodes an object as JSON with sorted members and without those that are null,
// so that the text depends neither on the order of Go's fields nor on how this version of
// Kubernetes' types encodes an absent value.
func canonical(object any) ([]byte, error) {
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var generic any
	if err := decodeExactly(encoded, &generic); err != nil {
		return nil, err
	}
	return json.Marshal(withoutNull(generic))
}

// decodeExactly decodes JSON and keeps every digit of its numbers.
func decodeExactly(encoded []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	return decoder.Decode(into)
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
