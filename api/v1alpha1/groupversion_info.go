// Package v1alpha1 is the API of Slipway: the MCPServer resource, its validation
// rules, and the vocabulary of its conditions.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=mcp.slipway.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// SchemeGroupVersion is the group and version of every type in this package.
	SchemeGroupVersion = schema.GroupVersion{Group: "mcp.slipway.dev", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the types of this package with a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &MCPServer{}, &MCPServerList{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
