package status

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/reason"
)

// crashWindow is for how long the status tells that processes of a server ended by themselves.
const crashWindow = adapterapi.ProcessWindow

// manyCrashes is how many of all processes that ended must have failed before the status tells:
// one in so many. One client may break one process of hundreds.
const manyCrashes = 10

// Crashes says that processes of the server end by themselves or cannot be started, and what to do
// about it. It is empty if they do not, or hardly ever.
func Crashes(o Observed) string {
	if text := processCrashes(o); text != "" {
		return text
	}
	return containerCrashes(o)
}

// AreTold says whether so many processes failed that the status tells.
func AreTold(p adapterapi.Processes) bool {
	failed := p.Crashed + p.Unstartable
	return failed >= secondTry && failed*manyCrashes >= p.Ended
}

func processCrashes(o Observed) string {
	p := o.Processes
	if !AreTold(p) {
		return ""
	}
	failed := p.Crashed + p.Unstartable
	how := "ended by themselves"
	switch {
	case p.Crashed == 0:
		how = "could not be started"
	case p.Unstartable > 0:
		how = "ended by themselves or could not be started"
	}
	cause := p.Cause
	// The message names a remedy only if it fits most failures.
	remedy := fmt.Sprintf("see kubectl logs -n %s -l %s -c %s", o.Server.Namespace, o.Selector, mcpv1alpha1.ContainerServer)
	switch {
	case p.OutOfMemory*2 >= failed:
		cause, remedy = "out of memory", string(reason.MoreMemory)
	case strings.Contains(cause, "memory"):
		remedy = string(reason.MoreMemory)
	}
	text := fmt.Sprintf("%d of %d processes %s in %d minutes", failed, max(p.Ended, failed), how, int(crashWindow/time.Minute))
	if cause != "" {
		text += ": " + cause
	}
	return text + "; " + remedy
}

// containerCrashes says that the kubelet restarts the server's container again and again.
func containerCrashes(o Observed) string {
	for i := range o.Pods {
		pod := &o.Pods[i]
		server := containerStatus(pod, mcpv1alpha1.ContainerServer)
		if server == nil || isDraining(pod) || isFinished(pod) {
			continue
		}
		end := lastCrash(server)
		if end == nil || o.Now.Sub(end.FinishedAt.Time) >= crashWindow {
			continue
		}
		remedy := logsOf(pod, mcpv1alpha1.ContainerServer)
		if end.Reason == oomKilled {
			remedy = string(reason.MoreMemory)
		}
		return fmt.Sprintf("the server's container of pod %s ended by itself at %s: %s; the kubelet has restarted it %d times since the pod was created; %s",
			pod.Name, at(end.FinishedAt.Time), exitBrief(end), server.RestartCount, remedy)
	}
	return ""
}

// lastCrash is how a container ended that the kubelet had to restart more than once, or nil.
func lastCrash(c *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if c.RestartCount < secondTry {
		return nil
	}
	return c.LastTerminationState.Terminated
}
