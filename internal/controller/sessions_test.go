package controller

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// The status does not follow every session that comes and goes.
func TestWhenSessionsArePublished(t *testing.T) {
	for name, test := range map[string]struct {
		published *int32
		open      int64
		limit     int64
		after     time.Duration // since the last time
		want      int32
	}{
		"first":                  {nil, 3, 20, time.Hour, 3},
		"none yet":               {nil, 0, 20, time.Hour, 0},
		"the same":               {new(int32(3)), 3, 20, time.Hour, 3},
		"one more of few":        {new(int32(3)), 4, 20, time.Hour, 4},
		"one more of many":       {new(int32(100)), 101, 2000, time.Hour, 100},
		"a tenth more":           {new(int32(100)), 110, 2000, time.Hour, 110},
		"a tenth less":           {new(int32(100)), 90, 2000, time.Hour, 90},
		"less than a minute ago": {new(int32(3)), 9, 20, time.Second, 3},
		"the last has ended":     {new(int32(1)), 0, 2000, time.Hour, 0},
		"one of none":            {new(int32(0)), 1, 2000, time.Hour, 1},
		"all are taken":          {new(int32(99)), 100, 100, time.Hour, 100},
		"one is free again":      {new(int32(100)), 99, 100, time.Hour, 99},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				last := time.Now()
				time.Sleep(test.after)
				server := &mcpv1alpha1.MCPServer{}
				server.Namespace, server.Name = someServer.Namespace, someServer.Name
				server.Status.Sessions = test.published
				s := newState(server, time.Now())
				s.memory.sessionsAt = last
				s.results = map[types.UID]prober.Result{"a": {
					Report: &prober.Report{Ready: true}, Sessions: adapterapi.Sessions{Open: test.open, Limit: test.limit},
				}}
				if got := sessionsOf(s); got == nil || *got != test.want {
					t.Errorf("got %v, want %d", got, test.want)
				}
			})
		})
	}
}

// Numbers of sessions of pods that have not told any.
const (
	unasked = -1 // by this manager
	mute    = -2 // did not answer it
)

// drainingServer has pods with sessions, named after whether they end: "l" lives and "d" drains. One called "p" drains
// and never had an address.
func drainingServer(now time.Time, kept *memory, published mcpv1alpha1.MCPServerStatus, pods map[string]int64) *state {
	server := &mcpv1alpha1.MCPServer{}
	server.Namespace, server.Name, server.Status = someServer.Namespace, someServer.Name, published
	s := newState(server, now)
	s.memory, s.results = kept, map[types.UID]prober.Result{}
	for name, sessions := range pods {
		pod := corev1.Pod{}
		pod.Name, pod.UID = name, types.UID(name)
		if !strings.HasPrefix(name, "l") {
			pod.DeletionTimestamp = &metav1.Time{Time: now}
		}
		if !strings.HasPrefix(name, "p") {
			pod.Status.PodIP = "192.0.2.1"
		}
		s.pods = append(s.pods, pod)
		if pod.Status.PodIP == "" {
			continue
		}
		result := prober.Result{Silent: sessions == mute}
		if sessions >= 0 {
			result = prober.Result{Report: &prober.Report{Ready: true}, Sessions: adapterapi.Sessions{Open: sessions, Limit: 20}}
		}
		s.results[pod.UID] = result
	}
	return s
}

// Sessions of pods that drain count, and the pods have no room for more.
func TestSessionsOfDrainingPods(t *testing.T) {
	for name, test := range map[string]struct {
		pods            map[string]int64
		published       *int32
		sessions, limit int32
	}{
		"none drains":                     {map[string]int64{"l1": 2, "l2": 3}, nil, 5, 40},
		"one drains":                      {map[string]int64{"l1": 2, "d1": 3}, nil, 5, 23},
		"the others are full":             {map[string]int64{"l1": 20, "d1": 3}, nil, 23, 23},
		"one that drains was not asked":   {map[string]int64{"l1": 2, "d1": unasked}, new(int32(9)), 9, 20},
		"one that drains does not answer": {map[string]int64{"l1": 2, "d1": mute}, new(int32(9)), 2, 20},
		"one that serves was not asked":   {map[string]int64{"l1": unasked, "d1": 3}, new(int32(9)), 9, 0},
		"one that serves does not answer": {map[string]int64{"l1": mute, "d1": 3}, new(int32(9)), 3, 0},
		"all drain":                       {map[string]int64{"d1": 2, "d2": 3}, nil, 5, 5},
	} {
		t.Run(name, func(t *testing.T) {
			s := drainingServer(noon, &memory{}, mcpv1alpha1.MCPServerStatus{Sessions: test.published}, test.pods)
			if got := sessionsOf(s); got == nil || *got != test.sessions {
				t.Errorf("sessions %v, want %d", got, test.sessions)
			}
			if got := sessionsLimit(s); got != test.limit {
				t.Errorf("limit %d, want %d", got, test.limit)
			}
		})
	}
}

// The status says at once how many pods drain. It does not follow every session that ends there.
func TestWhenDrainsArePublished(t *testing.T) {
	type draining = mcpv1alpha1.Draining
	for name, test := range map[string]struct {
		published *draining
		pods      map[string]int64
		after     time.Duration // since the last time
		want      *draining
	}{
		"none":                   {nil, map[string]int64{"l1": 2}, time.Hour, nil},
		"the first":              {nil, map[string]int64{"l1": 2, "d1": 3}, time.Second, &draining{Replicas: 1, Sessions: 3}},
		"another":                {&draining{Replicas: 1, Sessions: 3}, map[string]int64{"d1": 3, "d2": 1}, time.Second, &draining{Replicas: 2, Sessions: 4}},
		"the last is gone":       {&draining{Replicas: 1, Sessions: 3}, map[string]int64{"l1": 3}, time.Second, nil},
		"the same":               {&draining{Replicas: 1, Sessions: 3}, map[string]int64{"d1": 3}, time.Hour, &draining{Replicas: 1, Sessions: 3}},
		"fewer, soon":            {&draining{Replicas: 1, Sessions: 3}, map[string]int64{"d1": 2}, time.Second, &draining{Replicas: 1, Sessions: 3}},
		"fewer, later":           {&draining{Replicas: 1, Sessions: 3}, map[string]int64{"d1": 2}, time.Hour, &draining{Replicas: 1, Sessions: 2}},
		"another manager asks":   {&draining{Replicas: 1, Sessions: 3}, map[string]int64{"d1": unasked}, time.Hour, &draining{Replicas: 1, Sessions: 3}},
		"it gets no answer":      {&draining{Replicas: 1, Sessions: 3}, map[string]int64{"d1": mute}, time.Hour, &draining{Replicas: 1}},
		"it gets one of two":     {&draining{Replicas: 2, Sessions: 5}, map[string]int64{"d1": mute, "d2": 2}, time.Hour, &draining{Replicas: 2, Sessions: 2}},
		"one never had any":      {&draining{Replicas: 1, Sessions: 3}, map[string]int64{"d1": 2, "p1": 0}, time.Hour, &draining{Replicas: 2, Sessions: 2}},
		"nothing was ever known": {nil, map[string]int64{"d1": unasked}, time.Hour, &draining{Replicas: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := drainingServer(noon.Add(test.after), &memory{drainingAt: noon}, mcpv1alpha1.MCPServerStatus{Draining: test.published}, test.pods)
			if diff := cmp.Diff(test.want, drainingOf(s)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// rolledServer is a server with a Deployment of the template "new". Of each template so many pods drain as it says: "a2 new1".
func rolledServer(replicas int32, draining string) *state {
	server := &mcpv1alpha1.MCPServer{}
	server.Namespace, server.Name, server.Spec.Replicas = someServer.Namespace, someServer.Name, &replicas
	s := newState(server, noon)
	deployment := &appsv1.Deployment{}
	deployment.Spec.Template.Annotations = map[string]string{mcpv1alpha1.AnnotationTemplate: "new"}
	s.live[workload.ObjectDeployment] = deployment
	for of := range strings.FieldsSeq(draining) {
		template := strings.TrimRight(of, "0123456789")
		count, err := strconv.Atoi(of[len(template):])
		if err != nil {
			panic(err)
		}
		for n := range count {
			pod := corev1.Pod{}
			pod.Name = fmt.Sprintf("%s-%d", template, n)
			pod.Annotations, pod.DeletionTimestamp = map[string]string{mcpv1alpha1.AnnotationTemplate: template}, &metav1.Time{Time: noon}
			s.pods = append(s.pods, pod)
		}
	}
	return s
}

// Pods pile up if rollouts come faster than their sessions end. A smaller number of replicas piles up none, however
// small.
func TestReplacedPods(t *testing.T) {
	for name, test := range map[string]struct {
		replicas int32
		draining string
		replaced int
		told     bool
	}{
		"none":                                 {2, "", 0, false},
		"one rollout":                          {2, "a2", 2, false},
		"two rollouts":                         {2, "a2 b2", 4, false},
		"three rollouts":                       {2, "a2 b2 c1", 5, true},
		"of a single pod":                      {1, "a1 b1 c1", 3, true},
		"a scale-down from 20":                 {2, "new18", 0, false},
		"a scale-down, and then a rollout":     {2, "a20", 2, false},
		"a scale-down between two rollouts":    {2, "a2 b20", 4, false},
		"a scale-down during a rollout":        {2, "a9 new9", 2, false},
		"three rollouts, and then fewer":       {2, "a20 b20 c20 new18", 6, true},
		"pods of the newest were deleted":      {1, "new7", 0, false},
		"a server that is stopped":             {0, "a2 b2 c2", 0, false},
		"three rollouts, and then many more":   {20, "a2 b2 c2", 6, false},
		"three rollouts of which most is gone": {3, "a1 b1 c1", 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(1)
			s := rolledServer(test.replicas, test.draining)
			New(Options{Events: recorder}).tellOfDrains(s)
			if got := s.replaced(); got != test.replaced || len(recorder.Events) == 1 != test.told {
				t.Errorf("%d count as replaced, want %d; told: %d", got, test.replaced, len(recorder.Events))
			}
		})
	}
}

// A rollout restart is a rollout, although the template is the same for Slipway. A pod of which nothing runs any more
// does not drain.
func TestReplacedByRestarts(t *testing.T) {
	s := rolledServer(1, "new5")
	for i := range s.pods {
		s.pods[i].Annotations[annotationRestarted] = strconv.Itoa(i)
	}
	if got := s.replaced(); got != 5 {
		t.Errorf("%d count as replaced, want 5", got)
	}
	s.pods[0].Status.Phase = corev1.PodSucceeded
	if got := s.replaced(); got != 4 {
		t.Errorf("%d count as replaced, want 4", got)
	}
}

// Drains that pile up are one Event until they have become fewer.
func TestDrainsAreToldOnce(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	r, kept := New(Options{Events: recorder}), &memory{}
	for i, step := range []struct {
		draining string
		told     bool
	}{
		{"a2 b2", false}, {"a2 b2 c1", true}, {"a2 b2 c2", false}, {"a1 b1 c2", false}, {"a1 b2 c2", false}, {"c2", false}, {"c2 d2 e1", true}, {"", false},
	} {
		s := rolledServer(2, step.draining)
		s.memory = kept
		r.tellOfDrains(s)
		var told string
		select {
		case told = <-recorder.Events:
		default:
		}
		if strings.HasPrefix(told, "Warning DrainsPileUp 5 pods that rollouts have replaced drain") != step.told || !step.told && told != "" {
			t.Errorf("step %d: told %q", i, told)
		}
	}
}

// Processes that end because their pod does are no news.
func TestProcessesOfDrainingPods(t *testing.T) {
	s := drainingServer(noon, &memory{}, mcpv1alpha1.MCPServerStatus{}, map[string]int64{"l1": 1, "d1": 1})
	for pod, failed := range map[types.UID]int64{"l1": 2, "d1": 5} {
		s.results[pod] = prober.Result{Processes: adapterapi.Processes{Ended: failed, Crashed: failed}}
	}
	if got := processesOf(s); got.Crashed != 2 || got.Ended != 2 {
		t.Errorf("got %+v, want those of the pod that serves", got)
	}
}
