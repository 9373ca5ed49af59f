// Package fleet reads MCPServers and what they offer from the cluster. It asks no pod: what a server
// offers is in the ConfigMap that its status names, also while the server is stopped.
package fleet

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// pageSize bounds how many objects are in memory at a time, besides those that are kept.
const pageSize = 100

// Scheme has the types that the plugin reads.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(appsv1.AddToScheme(scheme))
	utilruntime.Must(authorizationv1.AddToScheme(scheme))
	utilruntime.Must(mcpv1alpha1.AddToScheme(scheme))
	return scheme
}

// Servers lists the MCPServers of a namespace, or of all if it is empty. The list has no managed fields.
func Servers(ctx context.Context, api client.Reader, namespace string) (*mcpv1alpha1.MCPServerList, error) {
	all := &mcpv1alpha1.MCPServerList{}
	for next := ""; ; {
		var page mcpv1alpha1.MCPServerList
		if err := api.List(ctx, &page, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list MCPServers: %w", err)
		}
		for i := range page.Items {
			page.Items[i].ManagedFields = nil
		}
		all.Items = append(all.Items, page.Items...)
		if next = page.Continue; next == "" {
			return all, nil
		}
	}
}

// Catalog is what a server offers.
type Catalog struct {
	Tools []Tool `json:"tools"`
	// IsSummary says that the catalog is from the status, which has names and first sentences only.
	IsSummary bool `json:"-"`
	// Trimmed says what the stored catalog lacks; empty if it is whole.
	Trimmed string `json:"-"`
}

// Tool is a tool of a server. Raw is all that the server says of it.
type Tool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations Annotations     `json:"annotations"`
	Raw         json.RawMessage `json:"-"`
}

// Annotations are hints of a server about a tool; nil is a hint that it does not give.
type Annotations struct {
	Title           string `json:"title"`
	ReadOnlyHint    *bool  `json:"readOnlyHint"`
	DestructiveHint *bool  `json:"destructiveHint"`
	IdempotentHint  *bool  `json:"idempotentHint"`
	OpenWorldHint   *bool  `json:"openWorldHint"`
}

// CatalogOf reads what a server offers. Without the right to read ConfigMaps it is the summary that
// the status has.
func CatalogOf(ctx context.Context, api client.Reader, server *mcpv1alpha1.MCPServer) (*Catalog, error) {
	if server.Status.Catalog == nil || server.Status.Catalog.ConfigMapName == "" {
		return summary(server), nil
	}
	stored := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: server.Namespace, Name: server.Status.Catalog.ConfigMapName}
	if err := api.Get(ctx, key, stored); apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return summary(server), nil
	} else if err != nil {
		return nil, fmt.Errorf("read the catalog of MCPServer %s: %w", client.ObjectKeyFromObject(server), err)
	}
	return parse(stored)
}

// summary is what the status says of the tools.
func summary(server *mcpv1alpha1.MCPServer) *Catalog {
	catalog := &Catalog{IsSummary: true}
	if server.Status.Catalog == nil {
		return catalog
	}
	for _, tool := range server.Status.Catalog.Tools {
		known := Tool{Name: tool.Name, Description: tool.Description}
		known.Raw, _ = json.Marshal(map[string]string{"name": tool.Name, "description": tool.Description}) // text can be encoded
		catalog.Tools = append(catalog.Tools, known)
	}
	if server.Status.Catalog.Truncated {
		catalog.Trimmed = "the status does not have all tools"
	}
	return catalog
}

func parse(stored *corev1.ConfigMap) (*Catalog, error) {
	var raw struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal([]byte(stored.Data[mcpv1alpha1.CatalogKey]), &raw); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", client.ObjectKeyFromObject(stored), err)
	}
	catalog := &Catalog{Trimmed: stored.Data[mcpv1alpha1.CatalogTrimmedKey]}
	for _, text := range raw.Tools {
		tool := Tool{Raw: text}
		if err := json.Unmarshal(text, &tool); err != nil {
			return nil, fmt.Errorf("read a tool of ConfigMap %s: %w", client.ObjectKeyFromObject(stored), err)
		}
		catalog.Tools = append(catalog.Tools, tool)
	}
	return catalog, nil
}
