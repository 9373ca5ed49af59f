package workload

import (
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// defaultServicePort is the port of a Service when the spec does not say, as its
// comments promise.
const defaultServicePort = 80

// URL is where clients in the cluster connect.
func URL(server *mcpv1alpha1.MCPServer) string {
	port := ""
	if number := servicePort(server); number != defaultServicePort {
		port = fmt.Sprintf(":%d", number)
	}
	return fmt.Sprintf("http://%s.%s.svc%s/mcp", server.Name, server.Namespace, port)
}

// Selector selects the server's pods, in the form that a scale subresource has.
func Selector(server *mcpv1alpha1.MCPServer) string {
	return mcpv1alpha1.LabelServer + "=" + server.Name
}

// selectorLabels are the only labels that pods are selected by. They never change: a
// Deployment's selector is immutable.
func selectorLabels(server *mcpv1alpha1.MCPServer) map[string]string {
	return map[string]string{mcpv1alpha1.LabelServer: server.Name}
}

func labelSelector(server *mcpv1alpha1.MCPServer) *metav1ac.LabelSelectorApplyConfiguration {
	return metav1ac.LabelSelector().WithMatchLabels(selectorLabels(server))
}

// labels are on everything that belongs to a server.
func labels(server *mcpv1alpha1.MCPServer) map[string]string {
	all := map[string]string{
		mcpv1alpha1.LabelName:      mcpv1alpha1.AppName,
		mcpv1alpha1.LabelInstance:  server.Name,
		mcpv1alpha1.LabelManagedBy: mcpv1alpha1.ManagedBy,
	}
	maps.Copy(all, selectorLabels(server))
	return all
}

// controllerRef makes an object the server's: it goes when the server goes.
func controllerRef(server *mcpv1alpha1.MCPServer) *metav1.OwnerReference {
	return metav1.NewControllerRef(server, mcpv1alpha1.SchemeGroupVersion.WithKind("MCPServer"))
}

// owner is controllerRef for objects that are applied.
func owner(server *mcpv1alpha1.MCPServer) *metav1ac.OwnerReferenceApplyConfiguration {
	ref := controllerRef(server)
	return metav1ac.OwnerReference().
		WithAPIVersion(ref.APIVersion).WithKind(ref.Kind).WithName(ref.Name).WithUID(ref.UID).
		WithController(*ref.Controller).WithBlockOwnerDeletion(*ref.BlockOwnerDeletion)
}

// createdMeta is the metadata of an object that is created and never applied.
func createdMeta(server *mcpv1alpha1.MCPServer, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: server.Namespace, Name: name, Labels: labels(server),
		OwnerReferences: []metav1.OwnerReference{*controllerRef(server)},
	}
}
