package kubeapi

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNodeReady(t *testing.T) {
	started := time.Date(2026, 1, 1, 0, 0, 10, 500, time.UTC)
	tests := map[string]struct {
		status    corev1.ConditionStatus
		heartbeat time.Time
		want      string
	}{
		"ready":              {corev1.ConditionTrue, started.Add(time.Second), ""},
		"in the same second": {corev1.ConditionTrue, started.Truncate(time.Second), ""},
		"said before":        {corev1.ConditionTrue, started.Add(-time.Second), "has not reported since"},
		"not ready":          {corev1.ConditionFalse, started.Add(time.Second), "no network"},
		"unknown":            {corev1.ConditionUnknown, started.Add(time.Second), "not ready"},
		"nothing":            {want: "has not reported yet"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{}
			if test.status != "" {
				node.Status.Conditions = []corev1.NodeCondition{{
					Type: corev1.NodeReady, Status: test.status, Message: "no network",
					LastHeartbeatTime: metav1.NewTime(test.heartbeat),
				}}
			}
			err := nodeReady(node, started)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestDeploymentAvailable(t *testing.T) {
	tests := map[string]struct {
		status appsv1.DeploymentStatus
		want   bool
	}{
		"available":        {appsv1.DeploymentStatus{ObservedGeneration: 2, UpdatedReplicas: 1, AvailableReplicas: 1}, true},
		"old status":       {appsv1.DeploymentStatus{ObservedGeneration: 1, UpdatedReplicas: 1, AvailableReplicas: 1}, false},
		"no pod yet":       {appsv1.DeploymentStatus{ObservedGeneration: 2}, false},
		"pod is not ready": {appsv1.DeploymentStatus{ObservedGeneration: 2, UpdatedReplicas: 1}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: test.status}
			if err := deploymentAvailable(deployment); (err == nil) != test.want {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestParseVersion(t *testing.T) {
	if got, err := parseVersion([]byte(`{"gitVersion":"v1.36.3"}`)); err != nil || got != "v1.36.3" {
		t.Errorf("%q, %v", got, err)
	}
	for _, body := range []string{"", "<html>", "{}"} {
		if _, err := parseVersion([]byte(body)); err == nil {
			t.Errorf("%q: no error", body)
		}
	}
}
