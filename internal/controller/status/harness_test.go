package status

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/prober"
)

var now = metav1.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// working is a server with one pod, where everything is as it should be.
func working() *Observed {
	o := &Observed{
		Server: &mcpv1alpha1.MCPServer{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", Generation: 3},
			Spec: mcpv1alpha1.MCPServerSpec{
				Image: "registry.example/x:1", Replicas: new(int32(1)),
				Transport: mcpv1alpha1.Transport{Type: mcpv1alpha1.TransportStdio},
			},
		},
		Deployment: &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Generation: 5},
			Spec:       appsv1.DeploymentSpec{Replicas: new(int32(1))},
			Status:     appsv1.DeploymentStatus{ObservedGeneration: 5, Replicas: 1, UpdatedReplicas: 1},
		},
		Pods:         []corev1.Pod{podNamed("a")},
		Results:      map[types.UID]prober.Result{"a": answered("sha256:1")},
		StartTimeout: time.Minute, CatalogConfigMap: "x-catalog",
		URL: "http://x.ns.svc/mcp", Selector: "mcp.slipway.dev/server=x",
		Now: now,
	}
	return o
}

// podNamed is a pod that has long been ready.
func podNamed(name string) corev1.Pod {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(time.Hour)}}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: ago(time.Hour),
			Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "new"},
		},
		Status: corev1.PodStatus{
			Phase:                 corev1.PodRunning,
			Conditions:            []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: mcpv1alpha1.ContainerAdapter, Image: "slipway/adapter:1", State: running}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: mcpv1alpha1.ContainerServer, Image: "registry.example/x:1", State: running}},
		},
	}
}

func unready(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: "containers with unready status: [mcp-adapter]"}}
}

// old makes a pod one of an earlier template.
func old(pod *corev1.Pod) {
	pod.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "old"}
	pod.CreationTimestamp = ago(2 * time.Hour)
}

func adapterOf(pod *corev1.Pod) *corev1.ContainerStatus { return &pod.Status.InitContainerStatuses[0] }
func serverOf(pod *corev1.Pod) *corev1.ContainerStatus  { return &pod.Status.ContainerStatuses[0] }

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func terminated(code int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}
}

func startedAgo(d time.Duration) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(d)}}
}

// answered is what is known of an instance that works.
func answered(digest string) prober.Result {
	return prober.Result{
		Outcome: prober.Verified, Report: &prober.Report{Ready: true},
		Catalog: &prober.Catalog{Summary: prober.Summary{
			ServerInfo:       mcpv1alpha1.ServerInfo{Name: "server of " + digest},
			ProtocolVersions: []string{"2025-11-25"},
			Catalog: mcpv1alpha1.Catalog{
				Digest: digest, Counts: mcpv1alpha1.CatalogCounts{Tools: 1}, Tools: []mcpv1alpha1.CatalogEntry{{Name: "echo"}},
			},
		}},
	}
}

// reported is what an adapter says after it has tried twice.
func reported(reason adapterapi.Reason, words string) prober.Result { return failed(2, reason, words) }

// failed is what an adapter says after so many failures.
func failed(failures int64, reason adapterapi.Reason, words string) prober.Result {
	return prober.Result{Outcome: prober.Pending, Report: &prober.Report{Reason: string(reason), Error: words, Failures: failures}}
}

// setPods replaces the pods. The Deployment follows: all are of the current template.
func (o *Observed) setPods(want int32, pods ...corev1.Pod) {
	o.Pods = pods
	o.Server.Spec.Replicas, o.Deployment.Spec.Replicas = &want, &want
	o.Deployment.Status.Replicas, o.Deployment.Status.UpdatedReplicas = int32(len(pods)), int32(len(pods))
}

// sickPod makes the only pod unready, without an answer from it.
func (o *Observed) sickPod(change func(*corev1.Pod)) {
	unready(&o.Pods[0])
	change(&o.Pods[0])
	o.Results = nil
}

// then computes the status and makes it the present one.
func (o *Observed) then() mcpv1alpha1.MCPServerStatus {
	o.Server.Status = Compute(*o)
	return o.Server.Status
}

// sum writes conditions as "Type=Status/Reason".
func sum(status mcpv1alpha1.MCPServerStatus) string {
	var parts []string
	for _, c := range status.Conditions {
		parts = append(parts, c.Type+"="+string(c.Status)+"/"+c.Reason)
	}
	return strings.Join(parts, " ")
}

func find(t *testing.T, status mcpv1alpha1.MCPServerStatus, name string) metav1.Condition {
	t.Helper()
	condition := meta.FindStatusCondition(status.Conditions, name)
	if condition == nil {
		t.Fatalf("no condition %s in %s", name, sum(status))
	}
	return *condition
}

func wantEqual(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func wantContains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %q", part, text)
		}
	}
}
