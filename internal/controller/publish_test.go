package controller

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
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
	r := New(Options{Client: api, Events: events.NewFakeRecorder(10), Now: time.Now})
	s := newState(server, time.Now())
	s.memory = r.memories.of(someServer)
	if err := r.publish(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	written := &mcpv1alpha1.MCPServer{}
	if err := api.Get(t.Context(), someServer, written); err != nil {
		t.Fatal(err)
	}
	if meta.FindStatusCondition(written.Status.Conditions, mcpv1alpha1.ConditionReady) == nil || written.ResourceVersion == before {
		t.Fatal("no status was written")
	}

	// The cache still has the old object. Nothing else is set up here, so code that
	// reads more than its version fails.
	behind := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&mcpv1alpha1.MCPServer{ObjectMeta: server.ObjectMeta}).Build()
	r.Client = oldVersion{behind, before}
	result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: someServer})
	if err != nil || result.RequeueAfter < firstLagRetry || result.RequeueAfter > lastLagRetry {
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

// An API server whose CRD lacks a field of the status stores nothing of it. The controller
// must not wait for a version that never comes: it would ignore pods and probes for as long.
func TestStatusThatIsNotStored(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := mcpv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	server := &mcpv1alpha1.MCPServer{}
	server.Namespace, server.Name = someServer.Namespace, someServer.Name
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(server).WithStatusSubresource(server).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, api client.Client, _ string, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
			return api.Get(ctx, client.ObjectKeyFromObject(object), object)
		},
	}).Build()
	if err := api.Get(t.Context(), someServer, server); err != nil {
		t.Fatal(err)
	}
	recorder := events.NewFakeRecorder(10)
	r := New(Options{Client: api, Events: recorder, Now: time.Now})
	for range 3 {
		s := newState(server, time.Now())
		if err := r.publish(t.Context(), s, nil); err != nil {
			t.Fatal(err)
		}
		kept := func(version string) bool { return version != server.ResourceVersion }
		if wait := s.memory.statusWrite.retryAfter(kept, time.Now()); wait != 0 {
			t.Errorf("the controller waits for %s for a version that never comes", wait)
		}
	}
	if got := testutil.ToFloat64(r.idleWrites); got != 3 {
		t.Errorf("%v writes without effect were counted, want 3", got)
	}
	if len(recorder.Events) != 0 {
		t.Errorf("there is an Event of what was not stored: %s", <-recorder.Events)
	}
}
