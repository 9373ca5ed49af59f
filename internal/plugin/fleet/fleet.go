// Package fleet reads MCPServers and what they offer from the cluster. It asks no pod: what a server
// offers is in the ConfigMap that its status names, also while the server is stopped.
package fleet

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// Bounds of how many objects are in memory at a time, besides those that are kept.
const (
	objectsOfPage  = 100
	metadataOfPage = 500
)

// Scheme has the types that the plugin reads.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(appsv1.AddToScheme(scheme))
	utilruntime.Must(authenticationv1.AddToScheme(scheme))
	utilruntime.Must(authorizationv1.AddToScheme(scheme))
	utilruntime.Must(mcpv1alpha1.AddToScheme(scheme))
	return scheme
}

// ManagerLabels are the labels of the Deployment of Slipway's manager.
func ManagerLabels() client.MatchingLabels {
	return client.MatchingLabels{mcpv1alpha1.LabelName: "slipway", "app.kubernetes.io/component": "manager"}
}

// Servers lists the MCPServers of a namespace, or of all if it is empty. The list has no managed fields.
func Servers(ctx context.Context, api client.Reader, namespace string) (*mcpv1alpha1.MCPServerList, error) {
	all := &mcpv1alpha1.MCPServerList{}
	newPage := func() *mcpv1alpha1.MCPServerList { return &mcpv1alpha1.MCPServerList{} }
	err := eachPage(ctx, api, "MCPServers", namespace, objectsOfPage, newPage, func(page *mcpv1alpha1.MCPServerList) {
		for i := range page.Items {
			page.Items[i].ManagedFields = nil
		}
		all.Items = append(all.Items, page.Items...)
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// ServerKeys are the names of the MCPServers of a namespace, or of all if it is empty. Only metadata is read.
func ServerKeys(ctx context.Context, api client.Reader, namespace string) ([]types.NamespacedName, error) {
	return keys(ctx, api, mcpv1alpha1.SchemeGroupVersion.WithKind("MCPServer"), namespace)
}

// keys reads only the metadata of objects, which is a small part of them.
func keys(ctx context.Context, api client.Reader, kind schema.GroupVersionKind, namespace string) ([]types.NamespacedName, error) {
	var found []types.NamespacedName
	newPage := func() *metav1.PartialObjectMetadataList {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return page
	}
	err := eachPage(ctx, api, kind.Kind+"s", namespace, metadataOfPage, newPage, func(page *metav1.PartialObjectMetadataList) {
		for i := range page.Items {
			found = append(found, client.ObjectKeyFromObject(&page.Items[i]))
		}
	})
	return found, err
}

// eachPage lists objects page by page.
func eachPage[L client.ObjectList](ctx context.Context, api client.Reader, kind, namespace string, size int64, newPage func() L, use func(L)) error {
	for next := ""; ; {
		page := newPage()
		if err := api.List(ctx, page, client.InNamespace(namespace), client.Limit(size), client.Continue(next)); err != nil {
			return fmt.Errorf("list %s: %w", kind, err)
		}
		use(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// Catalog is what a server offers.
type Catalog struct {
	Tools []Tool
	// IsSummary says that the catalog is from the status, which has names and first sentences only.
	IsSummary bool
	// Trimmed says what the stored catalog lacks; empty if it is whole.
	Trimmed string
}

// Tool is a tool as the manager's probe has stored it. Raw is all that the server says of it.
type Tool = mcpprobe.Tool

// Annotations are hints of a server about a tool.
type Annotations = mcpprobe.Annotations

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
	var content struct {
		Tools []Tool `json:"tools"`
	}
	if err := json.Unmarshal([]byte(stored.Data[mcpv1alpha1.CatalogKey]), &content); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", client.ObjectKeyFromObject(stored), err)
	}
	return &Catalog{Tools: content.Tools, Trimmed: stored.Data[mcpv1alpha1.CatalogTrimmedKey]}, nil
}
