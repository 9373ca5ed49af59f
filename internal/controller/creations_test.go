package controller

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-mcp/slipway/internal/workload"
)

func TestCreations(t *testing.T) {
	named := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "default", Name: name} }
	type step struct {
		begin, end string
		may        bool   // what begin says
		next       string // what end returns
	}
	for name, steps := range map[string][]step{
		"places are given in the order of asking": {
			{begin: "a", may: true}, {begin: "b", may: true}, {begin: "c"}, {begin: "d"},
			{end: "b", next: "c"}, {end: "a", next: "d"}, {end: "c"}, {end: "d"}, {begin: "e", may: true},
		},
		"a reserved place is not given to others": {
			{begin: "a", may: true}, {begin: "b", may: true}, {begin: "c"},
			{end: "a", next: "c"}, {begin: "d"}, {begin: "c", may: true}, {end: "c", next: "d"},
		},
		"a server that asks twice waits once": {
			{begin: "a", may: true}, {begin: "b", may: true}, {begin: "c"}, {begin: "c"},
			{end: "a", next: "c"}, {end: "b"},
		},
		"a server that is deleted while it waits is not waited for": {
			{begin: "a", may: true}, {begin: "b", may: true}, {begin: "c"}, {begin: "d"},
			{end: "c"}, {end: "a", next: "d"},
		},
		"a server that is deleted after it got a place passes it on": {
			{begin: "a", may: true}, {begin: "b", may: true}, {begin: "c"}, {begin: "d"},
			{end: "a", next: "c"}, {end: "c", next: "d"},
		},
		"a server without a place gives none up": {
			{begin: "a", may: true}, {begin: "b", may: true}, {begin: "c"}, {end: "other"}, {begin: "d"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := creations{most: 2}
			for i, s := range steps {
				if s.begin != "" {
					if may := c.begin(named(s.begin)); may != s.may {
						t.Fatalf("step %d: begin %s: %t, want %t", i, s.begin, may, s.may)
					}
					continue
				}
				next, ok := c.end(named(s.end))
				if next.Name != s.next || ok != (s.next != "") {
					t.Fatalf("step %d: end %s: %q, %t, want %q", i, s.end, next.Name, ok, s.next)
				}
			}
		})
	}
}

func TestWhoWaitsToBeCreated(t *testing.T) {
	queue := requestQueue(priorityqueue.New[reconcile.Request]("test"))
	t.Cleanup(queue.ShutDown)
	r := New(Options{Workers: 1})
	r.queue.Store(&queue)
	if !r.beginCreation(&state{name: types.NamespacedName{Name: "first"}}) {
		t.Fatal("the first server has to wait")
	}
	retried := types.NamespacedName{Name: "retried"}
	queue.AddRateLimited(reconcile.Request{NamespacedName: retried})
	if _, shutDown := queue.Get(); shutDown { // the queue counts a moment after it was told
		t.Fatal("the queue is shut down")
	}
	for name, test := range map[string]struct {
		state state
		may   bool
	}{
		"a new server waits":                       {state{name: types.NamespacedName{Name: "new"}}, false},
		"a server with a Deployment does not":      {state{live: map[workload.ObjectID]client.Object{workload.ObjectDeployment: &appsv1.Deployment{}}}, true},
		"a server whose pods run does not":         {state{pods: make([]corev1.Pod, 1)}, true},
		"a server that could not be made does not": {state{name: retried}, true}, // it would never back off
	} {
		t.Run(name, func(t *testing.T) {
			if may := r.beginCreation(&test.state); may != test.may {
				t.Errorf("may go on: %t, want %t", may, test.may)
			}
		})
	}
}
