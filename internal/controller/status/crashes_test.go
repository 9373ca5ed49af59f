package status

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/reason"
)

// The remedy fits the cause, and one process of hundreds is nothing to tell.
func TestCrashes(t *testing.T) {
	const logs = "see kubectl logs -n ns -l mcp.slipway.dev/server=x -c mcp-server"
	restarted := func(count int32, why string, finished time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			serverOf(p).RestartCount = count
			serverOf(p).LastTerminationState = terminated(3, why, "")
			serverOf(p).LastTerminationState.Terminated.FinishedAt = ago(finished)
		}
	}
	for name, test := range map[string]struct {
		processes adapterapi.Processes
		pod       func(*corev1.Pod)
		want      string
	}{
		"none":        {},
		"ended":       {processes: adapterapi.Processes{Ended: 100}},
		"one":         {processes: adapterapi.Processes{Ended: 1, Crashed: 1, Cause: "exit code 3"}},
		"few of many": {processes: adapterapi.Processes{Ended: 100, Crashed: 9, Cause: "exit code 3"}},
		"memory": {
			processes: adapterapi.Processes{Ended: 10, Crashed: 9, OutOfMemory: 9, Cause: "out of memory"},
			want:      "9 of 10 processes ended by themselves in 5 minutes: out of memory; raise spec.resources.limits.memory",
		},
		"mostly not memory": {
			processes: adapterapi.Processes{Ended: 10, Crashed: 9, OutOfMemory: 4, Cause: "exit code 3"},
			want:      "9 of 10 processes ended by themselves in 5 minutes: exit code 3; " + logs,
		},
		"exits": {
			processes: adapterapi.Processes{Ended: 2, Crashed: 2, Cause: "exit code 3"},
			want:      "2 of 2 processes ended by themselves in 5 minutes: exit code 3; " + logs,
		},
		"starts": {
			processes: adapterapi.Processes{Ended: 3, Unstartable: 3, Cause: "permission denied"},
			want:      "3 of 3 processes could not be started in 5 minutes: permission denied; " + logs,
		},
		"starts without memory": {
			processes: adapterapi.Processes{Ended: 3, Unstartable: 3, Cause: "no memory for another process"},
			want:      "3 of 3 processes could not be started in 5 minutes: no memory for another process; raise spec.resources.limits.memory",
		},
		"both": {
			processes: adapterapi.Processes{Ended: 5, Crashed: 1, Unstartable: 3},
			want:      "4 of 5 processes ended by themselves or could not be started in 5 minutes; " + logs,
		},
		"the container ended once":     {pod: restarted(1, "Error", time.Minute)},
		"the container ended long ago": {pod: restarted(2, "Error", 5*time.Minute)},
		"the container keeps ending": {
			pod: restarted(2, "Error", time.Minute),
			want: "the server's container of pod a ended by itself at 2026-08-01T11:59:00Z: exit code 3; the kubelet has restarted it 2 times since the pod was created; " +
				"see kubectl logs -n ns a -c mcp-server --previous",
		},
		"the container runs out of memory": {
			pod: restarted(7, "OOMKilled", time.Minute),
			want: "the server's container of pod a ended by itself at 2026-08-01T11:59:00Z: out of memory; the kubelet has restarted it 7 times since the pod was created; " +
				"raise spec.resources.limits.memory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			o.Processes = test.processes
			if test.pod != nil {
				test.pod(&o.Pods[0])
			}
			wantEqual(t, "crashes", test.want, Crashes(*o))
			if test.want != "" { // kubectl mcp finds them in the message of Ready
				wantEqual(t, "found", test.want, reason.Crashes("3 tools; 1 of 1 pod ready; "+test.want))
			}
		})
	}
}
