package workload

import (
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// CatalogName names the ConfigMap with the server's catalog.
func CatalogName(server *mcpv1alpha1.MCPServer) string { return server.Name + "-catalog" }

// CatalogConfigMap holds what the server offers, with all schemas.
func CatalogConfigMap(server *mcpv1alpha1.MCPServer, catalog Catalog) *corev1ac.ConfigMapApplyConfiguration {
	config := corev1ac.ConfigMap(CatalogName(server), server.Namespace).
		WithLabels(labels(server)).
		WithOwnerReferences(owner(server)).
		WithAnnotations(map[string]string{mcpv1alpha1.AnnotationCatalogDigest: catalog.Digest}).
		WithData(map[string]string{mcpv1alpha1.CatalogKey: string(catalog.JSON)})
	if catalog.Trimmed != "" {
		config.WithData(map[string]string{mcpv1alpha1.CatalogTrimmedKey: catalog.Trimmed})
	}
	return config
}
