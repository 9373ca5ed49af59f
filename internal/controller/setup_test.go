package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// What the cache holds of each object is what the controller reads.
func TestTrim(t *testing.T) {
	written := []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	annotations := func() map[string]string {
		return map[string]string{
			corev1.LastAppliedConfigAnnotation: "all of it", mcpv1alpha1.AnnotationRefresh: "now", mcpv1alpha1.AnnotationCatalogDigest: "digest",
		}
	}
	for name, test := range map[string]struct{ object, want metav1.Object }{
		"an MCPServer keeps the annotations that users set": {
			&mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{ManagedFields: written, Annotations: annotations()}},
			&mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				mcpv1alpha1.AnnotationRefresh: "now", mcpv1alpha1.AnnotationCatalogDigest: "digest",
			}}},
		},
		"metadata keeps the key of a Secret": {
			&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{mcpv1alpha1.AnnotationKeyID: "id", mcpv1alpha1.AnnotationRotateKey: "now"}}},
			&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{mcpv1alpha1.AnnotationKeyID: "id"}}},
		},
		"metadata without what is kept": {
			&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{mcpv1alpha1.AnnotationRotateKey: "now"}}},
			&metav1.PartialObjectMetadata{},
		},
		"metadata keeps the digest of a catalog": {
			&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ManagedFields: written, Annotations: annotations()}},
			&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{mcpv1alpha1.AnnotationCatalogDigest: "digest"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Trim(test.object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(test.want), got); diff != "" {
				t.Errorf("in the cache (-want +got):\n%s", diff)
			}
		})
	}
}
