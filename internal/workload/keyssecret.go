package workload

import (
	"time"

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

// KeysSecret holds the server's keys. It is mutable, and adapters read it again: a pod can
// mount an immutable Secret with its old content after the Secret is recreated under the
// same name (kubernetes#131589).
func KeysSecret(server *mcpv1alpha1.MCPServer, current, references adapterapi.Key) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: createdMeta(server, KeysSecretName(server)),
		Type:       corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			adapterapi.KeysCurrent:  []byte(current.Encode()),
			adapterapi.KeysAccepted: {},
			KeysReferences:          []byte(references.Encode()),
		},
	}
	if request := server.Annotations[mcpv1alpha1.AnnotationRotateKey]; request != "" { // a new key is what it asks for
		secret.Annotations = map[string]string{mcpv1alpha1.AnnotationRotateKey: request}
	}
	return secret
}

// KeysChange is a step of a rotation.
type KeysChange struct {
	Ring adapterapi.Keyring
	// Next is the id of the accepted key that becomes the current one; empty if there is none.
	Next string
	// Request is what the rotation was asked for with.
	Request string
	// Changed is when the step was done.
	Changed time.Time
}

// ChangeKeys writes a step into the Secret with the server's keys.
func ChangeKeys(secret *corev1.Secret, change KeysChange) {
	current, accepted := change.Ring.Encode()
	secret.Data[adapterapi.KeysCurrent], secret.Data[adapterapi.KeysAccepted] = []byte(current), []byte(accepted)
	annotations := secret.Annotations
	if annotations == nil {
		annotations = map[string]string{}
		secret.Annotations = annotations
	}
	for name, value := range map[string]string{
		mcpv1alpha1.AnnotationNextKey: change.Next, mcpv1alpha1.AnnotationRotateKey: change.Request,
		mcpv1alpha1.AnnotationKeysChanged: change.Changed.UTC().Format(time.RFC3339),
	} {
		if value == "" {
			delete(annotations, name)
		} else {
			annotations[name] = value
		}
	}
}
