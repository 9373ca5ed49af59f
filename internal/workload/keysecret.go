package workload

import (
	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// KeySecretKey is where a server's key is in its Secret.
const KeySecretKey = "key"

// KeySecretName names the Secret with the server's key.
func KeySecretName(server *mcpv1alpha1.MCPServer) string { return server.Name + "-session-key" }

// KeySecret holds the server's key, which is given in hexadecimal. It is created and
// never changed: pods that run with a key know no other.
func KeySecret(server *mcpv1alpha1.MCPServer, key string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: createdMeta(server, KeySecretName(server)),
		Type:       corev1.SecretTypeOpaque,
		Immutable:  new(true),
		Data:       map[string][]byte{KeySecretKey: []byte(key)},
	}
}
