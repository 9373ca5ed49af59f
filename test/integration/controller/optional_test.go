package controller

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/workload"
	"github.com/slipway-mcp/slipway/test/hang"
)

// ferries is the row of a kind that no cluster serves until a test installs it. Servers with more
// than one replica have none.
func ferries(kind schema.GroupVersionKind) workload.Owned {
	wanted := func(p workload.Parts) bool { return workload.Replicas(p.Server) == 1 }
	return workload.Owned{
		ID: "ferry", Kind: kind, Resource: "ferries", IsOptional: true,
		Name: func(server *mcpv1alpha1.MCPServer) string { return server.Name },
		Build: func(p workload.Parts) runtime.ApplyConfiguration {
			if !wanted(p) {
				return nil
			}
			ferry := newFerry(kind, p.Server.Namespace, p.Server.Name)
			ferry.SetLabels(map[string]string{mcpv1alpha1.LabelManagedBy: mcpv1alpha1.ManagedBy})
			ferry.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(p.Server, mcpv1alpha1.SchemeGroupVersion.WithKind("MCPServer"))})
			return client.ApplyConfigurationFromUnstructured(ferry)
		},
		IsUnwanted: func(p workload.Parts) bool { return !wanted(p) },
	}
}

func newFerry(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	ferry := &unstructured.Unstructured{}
	ferry.SetGroupVersionKind(kind)
	ferry.SetNamespace(namespace)
	ferry.SetName(name)
	return ferry
}

// ferryCRD is what makes the API server serve the kind.
func ferryCRD(kind schema.GroupVersionKind) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "ferries." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind, Plural: "ferries"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
}

// A kind that the cluster does not serve keeps no server from being Ready. When it is installed, the
// running manager makes, heals and prunes its objects like all others.
func TestKindThatIsInstalledLater(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	kind := schema.GroupVersionKind{Group: namespace + ".example.com", Version: "v1", Kind: "Ferry"} // of this run only
	create(t, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ferries"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{kind.Group}, Resources: []string{"ferries"}, Verbs: strings.Fields(ferries(kind).Verbs())}},
	}, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ferries"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "ferries"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: operatorUser}},
	})
	startOperator(t, namespace, func(o *operatorOptions) { o.owned = append(workload.AllOwned(), ferries(kind)) })
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready")
	g.Eventually(everything).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(ContainSubstring("does not serve Ferry."+kind.Group), "an Event says so")

	create(t, ferryCRD(kind))
	find := func() (uid string, err error) {
		ferry := newFerry(kind, namespace, "echo")
		err = shared.client.Get(t.Context(), client.ObjectKeyFromObject(ferry), ferry)
		return string(ferry.GetUID()), err
	}
	var uid string
	g.Eventually(func() (err error) {
		uid, err = find()
		return err
	}).WithTimeout(hang.Guard).Should(Succeed(), "it is made as soon as the kind is served")

	for range 3 { // once may be by chance: the server is looked at again because the kind was missing
		g.Expect(shared.client.Delete(t.Context(), newFerry(kind, namespace, "echo"))).To(Succeed())
		g.Eventually(func() bool {
			now, err := find()
			replaced := err == nil && now != uid
			if replaced {
				uid = now
			}
			return replaced
		}).WithTimeout(hang.Guard).Should(BeTrue(), "its deletion is noticed")
	}

	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas = new(int32(2)) })
	g.Eventually(func() bool {
		_, err := find()
		return apierrors.IsNotFound(err)
	}).WithTimeout(hang.Guard).Should(BeTrue(), "it is deleted when the server should have none")
}
