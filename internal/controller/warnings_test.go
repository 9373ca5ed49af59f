package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/prober"
)

// The manager does not report pods that wait for a node for a short time. After that it reports them once.
func TestDelayIsToldOnce(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	r := New(Options{Events: recorder})
	begin, kept := time.Unix(1700000000, 0), &memory{}
	at := func(passed time.Duration, reason string) (told string, again time.Duration) {
		s := newState(&mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}}, begin.Add(passed))
		s.memory = kept
		next := withConditions("Reconciling", "True", reason)
		next.Conditions[0].LastTransitionTime = metav1.NewTime(begin)
		r.tellOfDelay(s, &next)
		select {
		case event := <-recorder.Events:
			return event, s.requeueAfter
		default:
			return "", s.requeueAfter
		}
	}
	for _, step := range []struct {
		passed time.Duration
		reason string
		want   string
		again  time.Duration
	}{
		{0, mcpv1alpha1.ReasonPodsUnschedulable, "", time.Minute},
		{40 * time.Second, mcpv1alpha1.ReasonPodsUnschedulable, "", 20 * time.Second},
		{time.Minute, mcpv1alpha1.ReasonPodsUnschedulable, "Warning PodsUnschedulable because", 0},
		{2 * time.Minute, mcpv1alpha1.ReasonPodsUnschedulable, "", 0},
		{3 * time.Minute, mcpv1alpha1.ReasonPodsNotCreated, "Warning PodsNotCreated because", 0},
		{4 * time.Minute, mcpv1alpha1.ReasonPodsStarting, "", 0},
		{5 * time.Minute, mcpv1alpha1.ReasonPodsNotCreated, "Warning PodsNotCreated because", 0},
	} {
		told, again := at(step.passed, step.reason)
		if told != step.want || again != step.again {
			t.Errorf("after %s: told %q, again after %s, want %q and %s", step.passed, told, again, step.want, step.again)
		}
	}
}

// Crashes are one Event until they are over.
func TestCrashesAreToldOnce(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	r := New(Options{Events: recorder})
	s := newState(&mcpv1alpha1.MCPServer{}, time.Now())
	for _, crashes := range []string{"2 of 2", "3 of 3", "", "2 of 9"} {
		r.tellOfCrashes(s, crashes)
	}
	close(recorder.Events)
	var told []string
	for event := range recorder.Events {
		told = append(told, strings.TrimPrefix(event, "Warning ServerCrashes "))
	}
	if diff := cmp.Diff([]string{"2 of 2", "2 of 9"}, told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Counts of a server that keeps crashing change the status once a minute, but the first ones at once.
func TestProcessCounts(t *testing.T) {
	begin, kept := time.Unix(1700000000, 0), &memory{}
	for _, step := range []struct {
		passed time.Duration
		failed []int64 // by pod
		want   int64
		again  time.Duration
	}{
		{0, []int64{0, 0}, 0, 0},
		{time.Second, []int64{1, 0}, 0, 59 * time.Second},
		{2 * time.Second, []int64{1, 1}, 2, 0},
		{3 * time.Second, []int64{1, 1}, 2, 0},
		{12 * time.Second, []int64{2, 1}, 2, 50 * time.Second},
		{62 * time.Second, []int64{2, 3}, 5, 0},
		{63 * time.Second, []int64{0, 0}, 0, 0},
	} {
		s := newState(&mcpv1alpha1.MCPServer{}, begin.Add(step.passed))
		s.memory = kept
		s.results = map[types.UID]prober.Result{}
		for i, failed := range step.failed {
			s.results[types.UID(rune('a'+i))] = prober.Result{Processes: adapterapi.Processes{Ended: failed, Crashed: failed, OutOfMemory: failed, Cause: "out of memory"}}
		}
		got := processesOf(s)
		if got.Crashed != step.want || got.Ended != step.want || got.OutOfMemory != step.want || s.requeueAfter != step.again {
			t.Errorf("after %s: got %+v, again after %s, want %d and %s", step.passed, got, s.requeueAfter, step.want, step.again)
		}
	}
}

// What others may see or do is one Event for a spec, also with another manager.
func TestExposureIsToldOnce(t *testing.T) {
	const exposed, plain = "Warning ExposedWithoutAuth", "Warning PlaintextTokens"
	auth := &mcpv1alpha1.Auth{Mode: mcpv1alpha1.AuthModeRequired}
	for name, test := range map[string]struct {
		service corev1.ServiceType
		auth    *mcpv1alpha1.Auth
		seen    bool // by an earlier manager
		want    string
	}{
		"in the cluster":                  {corev1.ServiceTypeClusterIP, nil, false, ""},
		"load balancer":                   {corev1.ServiceTypeLoadBalancer, nil, false, exposed},
		"load balancer that was there":    {corev1.ServiceTypeLoadBalancer, nil, true, ""},
		"load balancer with auth":         {corev1.ServiceTypeLoadBalancer, auth, false, plain},
		"auth":                            {"", auth, false, plain},
		"auth that was there":             {"", auth, true, ""},
		"the server checks tokens itself": {corev1.ServiceTypeLoadBalancer, &mcpv1alpha1.Auth{Mode: mcpv1alpha1.AuthModeServer}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			r, kept := New(Options{Events: recorder}), &memory{}
			server := &mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", Generation: 2}}
			server.Spec.Service.Type, server.Spec.Auth = test.service, test.auth
			server.Status.ObservedGeneration = 1
			if test.seen {
				server.Status.ObservedGeneration = 2
			}
			for range 2 {
				s := newState(server, time.Unix(1700000000, 0))
				s.memory = kept
				r.tellOfExposure(s)
			}
			close(recorder.Events)
			var told []string
			for event := range recorder.Events {
				told = append(told, event)
			}
			if test.want == "" && len(told) > 0 || test.want != "" && (len(told) != 1 || !strings.HasPrefix(told[0], test.want)) {
				t.Errorf("told %q, want %q", told, test.want)
			}
		})
	}
}
