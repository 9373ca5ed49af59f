package workload

import (
	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// SessionsSecretName names the Secret with the key for sessions.
func SessionsSecretName(server *mcpv1alpha1.MCPServer) string { return server.Name + "-sessions" }

// SessionsSecret holds the key for sessions, for users who may read it. Pods do not mount it. It says from which key
// of the server it is derived.
func SessionsSecret(server *mcpv1alpha1.MCPServer, current adapterapi.Key) *corev1.Secret {
	meta := createdMeta(server, SessionsSecretName(server))
	meta.Annotations = map[string]string{mcpv1alpha1.AnnotationKeyID: current.ID()}
	return &corev1.Secret{
		ObjectMeta: meta,
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{adapterapi.SessionsKeyEntry: []byte(current.Sessions().Encode())},
	}
}
