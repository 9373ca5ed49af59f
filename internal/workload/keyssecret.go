package workload

import (
	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// KeysReferences is where the Secret has the key for digests of what the spec refers to.
// It is never rotated: its digests decide whether pods are restarted. Adapters do not get
// it.
const KeysReferences = "references"

// KeysSecretName names the Secret with the server's keys.
func KeysSecretName(server *mcpv1alpha1.MCPServer) string { return server.Name + "-keys" }

// KeysSecret holds the server's keys. It can be changed, and adapters read it again: an
// immutable Secret that is made anew under the same name can be mounted with its old
// content (kubernetes#131589).
func KeysSecret(server *mcpv1alpha1.MCPServer, current, references adapterapi.Key) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: createdMeta(server, KeysSecretName(server)),
		Type:       corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			adapterapi.KeysCurrent:  []byte(current.Encode()),
			adapterapi.KeysAccepted: {},
			KeysReferences:          []byte(references.Encode()),
		},
	}
}
