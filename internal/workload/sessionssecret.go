package workload

import (
	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// SessionsSecretName names the Secret with the key for sessions.
func SessionsSecretName(server *mcpv1alpha1.MCPServer) string { return server.Name + "-sessions" }

// SessionsSecret holds the key for sessions, for users who may read it. Pods do not mount it.
func SessionsSecret(server *mcpv1alpha1.MCPServer, key adapterapi.SessionsKey) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: createdMeta(server, SessionsSecretName(server)),
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{adapterapi.SessionsKeyEntry: []byte(key.Encode())},
	}
}
