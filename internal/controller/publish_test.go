package controller

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// A status is never computed from an object that our own last write has replaced: the
// cache shows it for a moment still, and one that changed there and back would be taken
// for one that never did.
func TestReconcileWaitsForItsOwnWrite(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := mcpv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	server := &mcpv1alpha1.MCPServer{}
	server.Namespace, server.Name = someServer.Namespace, someServer.Name
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(server).WithStatusSubresource(server).Build()
	if err := api.Get(t.Context(), someServer, server); err != nil {
		t.Fatal(err)
	}
	before := server.ResourceVersion
	r := New(Options{Client: api, Events: events.NewFakeRecorder(10)})
	if err := r.publish(t.Context(), newState(server, time.Now()), nil); err != nil {
		t.Fatal(err)
	}
	written := &mcpv1alpha1.MCPServer{}
	if err := api.Get(t.Context(), someServer, written); err != nil {
		t.Fatal(err)
	}
	if meta.FindStatusCondition(written.Status.Conditions, mcpv1alpha1.ConditionReady) == nil || written.ResourceVersion == before {
		t.Fatal("no status was written")
	}

	// The cache still has what was there before. Nothing else is set up here: whoever
	// looks further than at its version falls over.
	behind := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&mcpv1alpha1.MCPServer{ObjectMeta: server.ObjectMeta}).Build()
	r.Client = oldVersion{behind, before}
	result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: someServer})
	if err != nil || result.RequeueAfter != staleRetry {
		t.Errorf("got %+v, %v", result, err)
	}
}

// oldVersion is a cache that is behind.
type oldVersion struct {
	client.Client
	version string
}

func (c oldVersion) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := c.Client.Get(ctx, key, object, options...)
	object.SetResourceVersion(c.version)
	return err
}
