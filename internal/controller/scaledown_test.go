package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/internal/promise"
	"github.com/slipway-mcp/slipway/internal/workload"
)

func hoursOf(n int) time.Duration { return time.Duration(n) * time.Hour }

// What happens to the number of pods, step by step. have is the number of the Deployment, live are the pods.
func TestScaleDownInSteps(t *testing.T) {
	if cordonTime > promise.ScaleDown {
		t.Errorf("pods are cordoned for %s, and the promise is %s", cordonTime, promise.ScaleDown)
	}
	pods := map[string]candidate{
		"a": living("a", 4), "b": living("b", 0), "c": living("c", 7), "d": living("d", 1), "e": living("e", 2), "x": living("x", 9, unready),
		"?a": living("a", unknownSessions), "?b": living("b", unknownSessions), "?c": living("c", unknownSessions),
	}
	type step struct {
		after      time.Duration // since the first step
		want, have int32
		live       string
		replicas   int32
		wait       time.Duration
		victims    string
		lowers     bool // the caller has lowered the number
	}
	for name, steps := range map[string][]step{
		"at rest": {
			{0, 2, 2, "a b", 2, 0, "", false},
		},
		"up": {
			{0, 5, 2, "a b", 5, 0, "", false},
		},
		"down": {
			{0, 3, 5, "a b c d e", 5, 5 * time.Second, "b d", false},
			{2 * time.Second, 3, 5, "a b c d e", 5, 3 * time.Second, "b d", false},
			{5 * time.Second, 3, 5, "a b c d e", 3, 0, "b d", true},
			{6 * time.Second, 3, 5, "a b c d e", 3, 9 * time.Second, "b d", false}, // the cache is behind
			{7 * time.Second, 3, 3, "a b c d e", 3, 8 * time.Second, "b d", false},
			{8 * time.Second, 3, 3, "a c e", 3, 0, "", false},
		},
		"pods that are not deleted are used again": {
			{0, 1, 2, "a b", 2, 5 * time.Second, "b", false},
			{5 * time.Second, 1, 2, "a b", 1, 0, "b", true},
			{14 * time.Second, 1, 1, "a b", 1, time.Second, "b", false},
			{15 * time.Second, 1, 1, "a b", 1, 0, "", false},
		},
		"up meanwhile": {
			{0, 1, 3, "a b c", 3, 5 * time.Second, "a b", false},
			{time.Second, 2, 3, "a b c", 3, 4 * time.Second, "b", false},
			{2 * time.Second, 3, 3, "a b c", 3, 0, "", false},
			{3 * time.Second, 2, 3, "a b c", 3, 5 * time.Second, "b", false},
		},
		"further down meanwhile": {
			{0, 3, 4, "a b c d", 4, 5 * time.Second, "b", false},
			{3 * time.Second, 2, 4, "a b c d", 4, 2 * time.Second, "b d", false},
			{5 * time.Second, 2, 4, "a b c d", 2, 0, "b d", true},
		},
		"further down before the pods are deleted": {
			{0, 3, 4, "a b c d", 4, 5 * time.Second, "b", false},
			{5 * time.Second, 3, 4, "a b c d", 3, 0, "b", true},
			{6 * time.Second, 2, 3, "a b c d", 3, 5 * time.Second, "b d", false},
		},
		"further down while the cache is behind": {
			{0, 3, 5, "a b c d e", 5, 5 * time.Second, "b d", false},
			{5 * time.Second, 3, 5, "a b c d e", 3, 0, "b d", true},
			{5100 * time.Millisecond, 2, 5, "a b c d e", 3, 5 * time.Second, "b d e", false},
			{5200 * time.Millisecond, 2, 5, "a b c d e", 3, 4900 * time.Millisecond, "b d e", false},
			{6 * time.Second, 2, 3, "a c e", 3, 4100 * time.Millisecond, "e", false},
			{10100 * time.Millisecond, 2, 3, "a c e", 2, 0, "e", true},
		},
		"up and down before the pods are deleted": {
			{0, 1, 3, "a b c", 3, 5 * time.Second, "a b", false},
			{5 * time.Second, 1, 3, "a b c", 1, 0, "a b", true},
			{6 * time.Second, 2, 1, "a b c", 2, 9 * time.Second, "b", false},
			{7 * time.Second, 1, 2, "a b c", 2, 5 * time.Second, "a b", false},
		},
		"nobody is at those that go": {
			{0, 2, 3, "a b x", 2, 0, "x", true},
		},
		"another manager has asked no pod yet": {
			{0, 1, 3, "?a ?b ?c", 3, 5 * time.Second, "a b", false},
			{time.Second, 1, 3, "a b ?c", 3, 4 * time.Second, "a b", false},
			{2 * time.Second, 2, 3, "a b c", 3, 3 * time.Second, "b", false},
			{3 * time.Second, 1, 3, "?a b c", 3, 2 * time.Second, "b c", false},
			{4 * time.Second, 1, 3, "a b c", 3, time.Second, "a b", false},
		},
		"pods that are not there yet": {
			{0, 2, 5, "a b", 2, 0, "", false},
		},
		"all": {
			{0, 0, 3, "a b c", 0, 0, "", false},
		},
		"all meanwhile": {
			{0, 2, 3, "a b c", 3, 5 * time.Second, "b", false},
			{time.Second, 0, 3, "a b c", 0, 0, "", false},
		},
		"a rollout has pods too many": {
			{0, 2, 2, "a b c", 2, 0, "", false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			down := &scaleDown{}
			for i, step := range steps {
				var live []candidate
				for name := range strings.FieldsSeq(step.live) {
					live = append(live, pods[name])
				}
				now := noon.Add(step.after)
				have := down.known(step.have)
				replicas, wait := down.step(step.want, have, live, now)
				if got := namesOf(down.victims); replicas != step.replicas || wait != step.wait || got != step.victims {
					t.Errorf("step %d: %d replicas, wait %s, victims %q; want %d, %s, %q", i, replicas, wait, got, step.replicas, step.wait, step.victims)
				}
				if lowers := replicas < have && down.lowered.IsZero() && len(down.victims) > 0; lowers != step.lowers {
					t.Errorf("step %d: lowers the number: %t, want %t", i, lowers, step.lowers)
				}
				if step.lowers {
					down.lowered, down.to = now, replicas
				}
			}
		})
	}
}

// Pods stay cordoned for a number that is applied, or is about to be. For one that was refused the next steps cordon none,
// however often they try.
func TestCordonsAreLifted(t *testing.T) {
	type outcome struct {
		cordoned string
		replicas int32 // of the next step, half a second later
		wait     time.Duration
	}
	const want = int32(1) // pods, of 3
	for name, test := range map[string]struct {
		scaled, lowers, written bool // what the steps have decided and done
		failure                 error
		outcome                 outcome
	}{
		"nothing has failed":         {true, false, false, nil, outcome{"a b", 3, 4500 * time.Millisecond}},
		"it is applied":              {true, true, true, nil, outcome{"a b", 1, 9500 * time.Millisecond}},
		"it is applied, and no more": {true, true, true, errors.New("quota"), outcome{"a b", 1, 9500 * time.Millisecond}},
		"it is refused":              {true, true, false, nil, outcome{"", 1, 0}},
		"it fails":                   {true, true, false, errors.New("quota"), outcome{"", 1, 0}},
		"its costs fail":             {false, true, false, errors.New("quota"), outcome{"", 1, 0}},
		"the larger number fails":    {true, false, false, errors.New("at most 2"), outcome{"a b", 3, 4500 * time.Millisecond}},
		"a step before it fails":     {false, false, false, errors.New("quota"), outcome{"", 3, 5 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(&mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}}, noon)
			s.server.Spec.Replicas, s.scaled, s.lowers, s.atLeast = new(want), test.scaled, test.lowers, want
			pods, have, down := []candidate{living("a", 0), living("b", 1), living("c", 2)}, int32(3), &s.memory.scaleDown
			down.step(want, have, pods, noon)
			for _, pod := range pods {
				s.memory.instances = append(s.memory.instances, prober.Instance{UID: pod.uid, Cordoned: down.victims[pod.uid]})
			}
			if test.written {
				s.applied[workload.ObjectDeployment] = metav1.PartialObjectMetadata{}
				have = want
			}
			New(Options{Prober: prober.New(prober.Options{})}).settleScale(s, test.failure)
			var got outcome
			cordoned := map[types.UID]bool{}
			for _, instance := range s.memory.instances {
				if instance.Cordoned {
					cordoned[instance.UID] = true
				}
			}
			got.cordoned = namesOf(cordoned)
			got.replicas, got.wait = down.step(want, have, pods, noon.Add(500*time.Millisecond))
			if got != test.outcome {
				t.Errorf("got %+v, want %+v", got, test.outcome)
			}
		})
	}
}

func namesOf(victims map[types.UID]bool) string {
	var names []string
	for _, uid := range slices.Sorted(maps.Keys(victims)) {
		names = append(names, string(uid))
	}
	return strings.Join(names, " ")
}

// A policy or a role that refuses the costs of pods is not in the way of what the user asked for. An API server that does
// not answer is: the costs can be written later.
func TestDeletionCostsAreRefused(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, test := range map[string]struct {
		answer  error
		isError bool
	}{
		"by a policy":   {apierrors.NewForbidden(pods, "b", errors.New("admission webhook denied the request")), false},
		"as invalid":    {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "b", nil), false},
		"of a gone pod": {apierrors.NewNotFound(pods, "b"), false},
		"no answer":     {apierrors.NewServerTimeout(pods, "patch", 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			written := map[string]bool{}
			r := New(Options{Client: fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(_ context.Context, _ client.WithWatch, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
					if object.GetName() == "b" {
						return test.answer
					}
					written[object.GetName()] = true
					return nil
				},
			}).Build()})
			s := newState(&mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}}, noon)
			err := r.writeCosts(t.Context(), s, []candidate{living("a", 1), living("b", 2), living("c", 3)}, nil)
			if (err != nil) != test.isError || !test.isError && (!written["a"] || !written["c"]) {
				t.Errorf("error %v, written %v", err, written)
			}
		})
	}
}
