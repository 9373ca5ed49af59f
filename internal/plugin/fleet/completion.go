package fleet

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// Mapper knows the kinds that names are completed from, so that a client need not ask the API server
// which it has.
func Mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(mcpv1alpha1.SchemeGroupVersion.WithKind("MCPServer"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	return mapper
}

// ServerNames are the names of the MCPServers of a namespace.
func ServerNames(ctx context.Context, api client.Reader, namespace string) ([]string, error) {
	return names(ctx, api, mcpv1alpha1.SchemeGroupVersion.WithKind("MCPServer"), namespace)
}

// NamespaceNames are the names of all namespaces.
func NamespaceNames(ctx context.Context, api client.Reader) ([]string, error) {
	return names(ctx, api, corev1.SchemeGroupVersion.WithKind("Namespace"), "")
}

func names(ctx context.Context, api client.Reader, kind schema.GroupVersionKind, namespace string) ([]string, error) {
	found, err := keys(ctx, api, kind, namespace)
	names := make([]string, len(found))
	for i, key := range found {
		names[i] = key.Name
	}
	return names, err
}

// Prompt is a prompt of a server.
type Prompt struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Arguments   []struct {
		Name        string `json:"name"`
		Description string `json:"description,omitempty"`
		Required    bool   `json:"required,omitempty"`
	} `json:"arguments,omitempty"`
}

// Resource is a resource of a server.
type Resource struct {
	URI         string `json:"uri"`
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`
	MIMEType    string `json:"mimeType,omitempty"`
}

// PromptsAndResourcesOf reads what a server offers besides tools. The status has none of it.
func PromptsAndResourcesOf(ctx context.Context, api client.Reader, server *mcpv1alpha1.MCPServer) ([]Prompt, []Resource, error) {
	if server.Status.Catalog == nil || server.Status.Catalog.ConfigMapName == "" {
		return nil, nil, nil
	}
	stored := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: server.Namespace, Name: server.Status.Catalog.ConfigMapName}
	if err := api.Get(ctx, key, stored); err != nil {
		return nil, nil, fmt.Errorf("read the catalog of MCPServer %s: %w", client.ObjectKeyFromObject(server), err)
	}
	var catalog struct {
		Prompts   []Prompt   `json:"prompts"`
		Resources []Resource `json:"resources"`
	}
	if err := json.Unmarshal([]byte(stored.Data[mcpv1alpha1.CatalogKey]), &catalog); err != nil {
		return nil, nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	return catalog.Prompts, catalog.Resources, nil
}
