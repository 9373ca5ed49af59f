package controller

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/workload"
)

var noon = time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

func numbered(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: strconv.Itoa(i)}
}

// No more than so many are rolled out at a time, and the end of one begins the next.
func TestRolloutsTakeTurns(t *testing.T) {
	const servers, most = 100, 7
	r := rollouts{most: most}
	rolling, waiting, done := map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}, 0
	want := func(server types.NamespacedName) {
		others, ok := r.begin(server, noon)
		if ok {
			rolling[server] = true
			delete(waiting, server)
		} else {
			waiting[server] = true
		}
		if len(rolling) > most || !ok && (others != most || len(rolling) != most) {
			t.Fatalf("%s may begin: %t; %d are rolled out, %d others", server, ok, len(rolling), others)
		}
	}
	for i := range servers {
		want(numbered(i))
	}
	for len(rolling) > 0 {
		all := slices.Collect(func(yield func(types.NamespacedName) bool) {
			for server := range rolling {
				if !yield(server) {
					return
				}
			}
		})
		server := all[rand.IntN(len(all))]
		if next := r.observe(server, noon, noon); len(next) != 0 {
			t.Fatalf("it is not done, and %v are told", next)
		}
		delete(rolling, server)
		done++
		next := r.observe(server, time.Time{}, noon)
		if len(next) != min(1, len(waiting)) {
			t.Fatalf("%d wait, told: %v", len(waiting), next)
		}
		for _, told := range next {
			want(told)
		}
	}
	if done != servers || len(r.rolling) != 0 || len(r.waiting) != 0 {
		t.Errorf("%d are rolled out; left: %+v", done, r.rolling)
	}
}

// A rollout that does not finish holds up the others for so long, and no longer.
func TestRolloutThatNeverEnds(t *testing.T) {
	r := rollouts{most: 1}
	if _, ok := r.begin(numbered(1), noon); !ok {
		t.Fatal("the first may not begin")
	}
	for after, want := range map[time.Duration]bool{0: false, rolloutPatience - 1: false, rolloutPatience: true} {
		r := rollouts{most: 1, rolling: map[types.NamespacedName]time.Time{numbered(1): noon}}
		r.observe(numbered(1), noon, noon.Add(after)) // it is reconciled now and then
		if _, ok := r.begin(numbered(2), noon.Add(after)); ok != want {
			t.Errorf("after %s the second may begin: %t", after, ok)
		}
	}
	// Its end wakes one that waits.
	r.begin(numbered(2), noon)
	if next := r.observe(numbered(1), noon, noon.Add(rolloutPatience)); !slices.Equal(next, []types.NamespacedName{numbered(2)}) {
		t.Errorf("told: %v", next)
	}
	// A rollout that is not observed ends, too.
	r.begin(numbered(1), noon)
	if _, ok := r.begin(numbered(2), noon.Add(rolloutPatience)); !ok {
		t.Error("it waits without end")
	}
}

// A new manager counts what the one before it began.
func TestRolloutsOfAnotherManager(t *testing.T) {
	r := rollouts{most: 2}
	list := func() ([]types.NamespacedName, error) {
		return []types.NamespacedName{numbered(1), numbered(2), numbered(3)}, nil
	}
	if err := r.seed(func() ([]types.NamespacedName, error) { return nil, errors.New("later") }, noon); err == nil {
		t.Error("an error is lost")
	}
	if err := r.seed(list, noon); err != nil {
		t.Fatal(err)
	}
	r.observe(numbered(3), noon.Add(-time.Minute), noon)
	if !r.rolling[numbered(3)].Equal(noon.Add(-time.Minute)) {
		t.Error("its time is not the one at which it began")
	}
	if others, ok := r.begin(numbered(4), noon); ok || others != 3 {
		t.Errorf("%d others, may begin: %t", others, ok)
	}
	r.observe(numbered(1), time.Time{}, noon) // which the user had changed
	if next := r.observe(numbered(2), time.Time{}, noon); !slices.Equal(next, []types.NamespacedName{numbered(4)}) {
		t.Errorf("told: %v", next)
	}
	if err := r.seed(list, noon); err != nil || len(r.rolling) != 1 {
		t.Errorf("counted twice: %v", r.rolling)
	}
}

// Which servers are being rolled out by the manager.
func TestRolloutSince(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *state)
		counts bool
	}{
		"new pods are not there yet":        {func(*state) {}, true},
		"all pods are new":                  {func(s *state) { s.deployment().Status.UpdatedReplicas = 2 }, false},
		"one of them is not available":      {func(s *state) { s.deployment().Status.UpdatedReplicas, s.deployment().Status.AvailableReplicas = 2, 1 }, true},
		"the Deployment controller is late": {func(s *state) { s.deployment().Status.UpdatedReplicas, s.deployment().Status.ObservedGeneration = 2, 4 }, true},
		"the template is not applied yet":   {func(s *state) { s.deployment().Status.UpdatedReplicas, s.current.Template = 2, []byte(`{}`) }, true},
		"there is no Deployment":            {func(s *state) { delete(s.live, workload.ObjectDeployment) }, true},
		"the user began it":                 {func(s *state) { s.revisions[0].Annotations = nil }, false},
		"there is nothing to restart":       {func(s *state) { s.server.Spec.Suspend = true }, false},
		"no pod is ready":                   {func(s *state) { s.pods[0].Status.Conditions = nil }, false},
		"the only ready pod drains":         {func(s *state) { s.pods[0].DeletionTimestamp = &metav1.Time{Time: noon} }, false},
		"another pod drains": {func(s *state) {
			going := s.pods[0]
			going.DeletionTimestamp = &metav1.Time{Time: noon}
			s.pods = append([]corev1.Pod{going}, s.pods...)
		}, true},
		"no pod is ready, because of it": {func(s *state) {
			s.pods, s.server.Spec.Rollout.Strategy = nil, mcpv1alpha1.RolloutRecreate
		}, true},
		"nothing is to be recreated": {func(s *state) {
			s.pods, s.server.Spec.Rollout.Strategy, s.server.Spec.Suspend = nil, mcpv1alpha1.RolloutRecreate, true
		}, false},
		"there is no template":                {func(s *state) { s.current = nil }, false},
		"pods are missing":                    {func(s *state) { s.deployment().Status = appsv1.DeploymentStatus{ObservedGeneration: 5} }, true},
		"as many as there should be, no more": {func(s *state) { s.deployment().Status.UpdatedReplicas, s.deployment().Spec.Replicas = 2, new(int32(3)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(&mcpv1alpha1.MCPServer{}, noon)
			s.current = &workload.Rendered{Template: []byte(`{"metadata":{"annotations":{"mcp.slipway.dev/template":"new"}}}`)}
			s.revisions = []appsv1.ControllerRevision{{ObjectMeta: metav1.ObjectMeta{
				CreationTimestamp: metav1.NewTime(noon), Annotations: map[string]string{mcpv1alpha1.AnnotationCause: causeUpgrade},
			}}}
			s.pods = []corev1.Pod{{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}}
			deployment := &appsv1.Deployment{}
			s.live[workload.ObjectDeployment] = deployment
			deployment.Generation, deployment.Spec.Replicas = 5, new(int32(2))
			deployment.Spec.Template.Annotations = map[string]string{mcpv1alpha1.AnnotationTemplate: "new"}
			deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: 5, Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 2}
			test.change(s)
			s.rendered = s.current
			if got := s.rolloutSince(); got.Equal(noon) != test.counts {
				t.Errorf("since %s", got)
			}
		})
	}
}

// A server whose only ready pods drain does not wait for its turn: the rollout may be what mends it.
func TestServerThatDrainsWaitsForNoTurn(t *testing.T) {
	for name, test := range map[string]struct {
		deleted *metav1.Time
		begins  bool
	}{
		"its pod serves": {nil, false},
		"its pod drains": {&metav1.Time{Time: noon}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(Options{MaxRollouts: 1})
			r.rollouts.begin(numbered(1), noon)
			s := newState(&mcpv1alpha1.MCPServer{}, noon)
			s.pods = []corev1.Pod{{
				ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: test.deleted},
				Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
			}}
			if got := r.takeTurn(s); got != test.begins || (s.waiting == nil) != test.begins {
				t.Errorf("begins: %t, waits: %+v", got, s.waiting)
			}
		})
	}
}
