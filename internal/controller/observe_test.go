package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// What a reconciliation reads does not grow with the number of servers in the namespace:
// the cache finds pods and revisions by an index, and looks at no others.
func TestObserveUsesTheIndex(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var scans []string
	api := fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&corev1.Pod{}, serverIndex, serverLabel).WithIndex(&appsv1.ControllerRevision{}, serverIndex, serverLabel).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				asked := (&client.ListOptions{}).ApplyOptions(options)
				if asked.FieldSelector == nil || asked.FieldSelector.Empty() {
					scans = append(scans, fmt.Sprintf("%T", list))
				}
				return api.List(ctx, list, options...)
			},
		}).Build()
	server := &mcpv1alpha1.MCPServer{}
	server.Namespace, server.Name = someServer.Namespace, someServer.Name
	r, s := New(Options{Client: api, Now: time.Now}), newState(server, time.Now())
	if err := r.observePods(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := r.observeRevisions(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if len(scans) > 0 {
		t.Errorf("these are found by a look at every object of the namespace: %v", scans)
	}
}
