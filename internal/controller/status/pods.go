package status

import (
	"cmp"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/diagnosis"
	"github.com/slipway-mcp/slipway/internal/prober"
)

// patience is how long a pod may take before it is said to be more than starting.
const patience = time.Minute

// PodReady says whether the kubelet calls a pod ready.
func PodReady(pod *corev1.Pod) bool {
	condition := podCondition(pod, corev1.PodReady)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

func podCondition(pod *corev1.Pod, name corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == name {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// Recheck is after which time a status is to be computed again, although nothing may
// have happened: a pod that is not ready is starting only for so long. It is 0 when
// there is no need to.
func Recheck(pods []corev1.Pod, now time.Time) time.Duration {
	var soonest time.Duration
	for i := range pods {
		pod := &pods[i]
		if PodReady(pod) || isDraining(pod) || isFinished(pod) {
			continue
		}
		starts := []time.Time{startOf(pod)}
		if adapter := containerStatus(pod, mcpv1alpha1.ContainerAdapter); adapter != nil && adapter.State.Running != nil {
			starts = append(starts, adapter.State.Running.StartedAt.Time)
		}
		for _, start := range starts {
			if left := patience - now.Sub(start); left > 0 && (soonest == 0 || left < soonest) {
				soonest = left
			}
		}
	}
	return soonest
}

func isDraining(pod *corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() }

// isFinished says whether a pod is only a record, such as that of an eviction.
func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// startOf is since when the server should be starting.
func startOf(pod *corev1.Pod) time.Time {
	if server := containerStatus(pod, mcpv1alpha1.ContainerServer); server != nil && server.State.Running != nil {
		return server.State.Running.StartedAt.Time
	}
	return pod.CreationTimestamp.Time
}

func containerStatus(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i]
			}
		}
	}
	return nil
}

// sick is a pod that is not ready.
type sick struct {
	pod    *corev1.Pod
	result prober.Result
	stdio  bool // what the server speaks
	now    time.Time
}

// whatIsWrong says why a pod is not ready: what keeps it from a node, then what keeps
// its containers from running, then what the adapter says of its server. Nothing in
// the answer changes while a container is started again and again.
func (s sick) whatIsWrong() Obstacle {
	for _, ask := range []func() *Obstacle{s.scheduling, s.pulling, s.adapter, s.server, s.report} {
		if wrong := ask(); wrong != nil {
			return *wrong
		}
	}
	return s.starting()
}

func (s sick) scheduling() *Obstacle {
	c := podCondition(s.pod, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse {
		return nil
	}
	return &Obstacle{mcpv1alpha1.ReasonPodsUnschedulable, "no node takes it: " + cmp.Or(c.Message, c.Reason)}
}

// pullAdvice has the kubelet's reasons for not having an image, and what to do.
var pullAdvice = map[string]string{
	"ErrImagePull":              "check spec.image, and spec.imagePullSecrets if the registry is private",
	"ImagePullBackOff":          "check spec.image, and spec.imagePullSecrets if the registry is private",
	"RegistryUnavailable":       "check spec.image, and that the registry can be reached from the node",
	"InvalidImageName":          "correct spec.image",
	"ErrImageNeverPull":         "bring the image to the node, or change spec.imagePullPolicy, which forbids to pull it",
	"ImageInspectError":         "check the image and the container runtime of the node",
	"SignatureValidationFailed": "sign the image as the node demands",
}

// backOff begins what the kubelet says between two attempts; what follows is what it
// says after each.
var backOff = regexp.MustCompile(`^Back-off pulling image "[^"]*"(: )?(ErrImagePull: )?`)

func (s sick) pulling() *Obstacle {
	for _, name := range []string{mcpv1alpha1.ContainerServer, mcpv1alpha1.ContainerAdapter} {
		c := containerStatus(s.pod, name)
		if c == nil || c.State.Waiting == nil || pullAdvice[c.State.Waiting.Reason] == "" {
			continue
		}
		waiting := c.State.Waiting
		words := brief(backOff.ReplaceAllString(waiting.Message, ""))
		text := fmt.Sprintf("the image %s cannot be pulled: %s; %s", c.Image, cmp.Or(words, "the kubelet does not say why"), pullAdvice[waiting.Reason])
		if name == mcpv1alpha1.ContainerAdapter {
			text = fmt.Sprintf("the adapter's image %s cannot be pulled: %s; it comes with the operator: whoever runs that must make it available to the nodes",
				c.Image, cmp.Or(words, waiting.Reason))
		}
		return &Obstacle{mcpv1alpha1.ReasonImagePullFailed, text}
	}
	return nil
}

// adapter says what is wrong with the container that the user knows nothing of.
func (s sick) adapter() *Obstacle {
	c := containerStatus(s.pod, mcpv1alpha1.ContainerAdapter)
	if c == nil {
		return nil
	}
	// Its hook fails, too, when it ends so early, and says less.
	if port := takenPort(s.end(c)); port != "" {
		return &Obstacle{mcpv1alpha1.ReasonPodsNotReady, fmt.Sprintf("the adapter cannot listen on port %s, because another process of the pod does; "+
			"have the server use other ports than %d and %d, which are the adapter's: containers of a pod share them; %s",
			port, mcpv1alpha1.AdapterPort, mcpv1alpha1.AdapterAdminPort, logsOf(s.pod, mcpv1alpha1.ContainerAdapter))}
	}
	if words := notCreated(c); words != "" {
		return &Obstacle{mcpv1alpha1.ReasonPodsNotReady, "the adapter's container cannot be started: " + words}
	}
	if end := s.end(c); end != nil {
		return &Obstacle{mcpv1alpha1.ReasonPodsNotReady, "the adapter's container ended: " + exit(end, "raise spec.adapter.resources.limits.memory") +
			"; " + logsOf(s.pod, mcpv1alpha1.ContainerAdapter)}
	}
	return nil
}

// portTaken is in an adapter's last line when it cannot listen.
var portTaken = regexp.MustCompile(`listen tcp \S*:(\d+): bind: address already in use`)

// takenPort is the port that an adapter ended for not having it, or empty.
func takenPort(end *corev1.ContainerStateTerminated) string {
	if end == nil {
		return ""
	}
	if match := portTaken.FindStringSubmatch(end.Message); match != nil {
		return match[1]
	}
	return ""
}

func (s sick) server() *Obstacle {
	c := containerStatus(s.pod, mcpv1alpha1.ContainerServer)
	if c == nil {
		return nil
	}
	if words := notCreated(c); words != "" {
		if c.State.Waiting.Reason == "CreateContainerConfigError" {
			// What is missing may come: the kubelet tries again.
			return &Obstacle{mcpv1alpha1.ReasonPodsNotReady, "the server's container cannot be created: " + words}
		}
		return &Obstacle{mcpv1alpha1.ReasonServerExits, "the server cannot be started: " + words + "; check spec.command, spec.args and spec.workingDir"}
	}
	end := s.end(c)
	switch {
	case end == nil:
		return nil
	case end.Reason == "StartError" || end.Reason == "ContainerCannotRun":
		return &Obstacle{mcpv1alpha1.ReasonServerExits, "the server cannot be started: " + cmp.Or(brief(end.Message), end.Reason) +
			"; check spec.command, spec.args and spec.workingDir"}
	default:
		return &Obstacle{mcpv1alpha1.ReasonServerExits, "the server's container ended: " + exit(end, "raise spec.resources.limits.memory") +
			"; " + logsOf(s.pod, mcpv1alpha1.ContainerServer)}
	}
}

// notCreated is why there is no container to run, if there is none.
func notCreated(c *corev1.ContainerStatus) string {
	waiting := c.State.Waiting
	if waiting == nil {
		return ""
	}
	switch waiting.Reason {
	case "", "ContainerCreating", "PodInitializing", "CrashLoopBackOff":
		return ""
	default:
		return cmp.Or(brief(waiting.Message), waiting.Reason)
	}
}

// end is how a container ended that does not run, or that runs again since a short
// while: one that keeps ending is not called another thing between two attempts.
func (s sick) end(c *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case c.State.Terminated != nil:
		return c.State.Terminated
	case c.State.Running != nil && s.now.Sub(c.State.Running.StartedAt.Time) >= patience:
		return nil
	case c.LastTerminationState.Terminated != nil:
		return c.LastTerminationState.Terminated
	case c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff":
		return &corev1.ContainerStateTerminated{ExitCode: -1}
	default:
		return nil
	}
}

// exit says how a container ended.
func exit(end *corev1.ContainerStateTerminated, moreMemory string) string {
	const signalled = 128 // what shells and container runtimes add to a signal's number
	var text string
	switch {
	case end.Reason == "OOMKilled":
		text = "it ran out of memory and was killed; " + moreMemory
	case end.Signal != 0:
		text = fmt.Sprintf("by signal %d", end.Signal)
	case end.ExitCode > signalled:
		text = fmt.Sprintf("exit code %d (signal %d)", end.ExitCode, end.ExitCode-signalled)
	case end.ExitCode < 0:
		text = "it keeps ending"
	default:
		text = fmt.Sprintf("exit code %d", end.ExitCode)
	}
	if lines := diagnosis.Lines("", end.Message); lines != "" {
		text += "; it wrote: " + lines
	}
	return text
}

// logsOf is where to find what a container wrote before it was started again.
func logsOf(pod *corev1.Pod, container string) string {
	return logsNow(pod, container) + " --previous"
}

// logsNow is where to find what a container that runs has written.
func logsNow(pod *corev1.Pod, container string) string {
	return fmt.Sprintf("see kubectl logs -n %s %s -c %s", pod.Namespace, pod.Name, container)
}

// report is what the adapter says is wrong with its server. One that ends or cannot
// be started must be corrected, and so must one that runs and does not speak MCP.
func (s sick) report() *Obstacle {
	r := s.result.Report
	if r == nil || r.Ready {
		return nil
	}
	words := brief(r.Error)
	switch adapterapi.Reason(r.Reason) {
	case adapterapi.Exited:
		// The launcher runs on, so all that its processes write is in one log.
		return &Obstacle{mcpv1alpha1.ReasonServerExits, cmp.Or(words, "the server's process ended by itself") + "; " + logsNow(s.pod, mcpv1alpha1.ContainerServer)}
	case adapterapi.Unstartable:
		if s.stdio {
			return &Obstacle{mcpv1alpha1.ReasonServerExits, "the server cannot be started: " + cmp.Or(words, "the adapter does not say why") +
				"; check spec.command, spec.args and spec.workingDir"}
		}
		if s.now.Sub(startOf(s.pod)) < patience {
			return &Obstacle{mcpv1alpha1.ReasonPodsStarting, "the server runs and does not listen yet: " + cmp.Or(words, "nobody answers") +
				"; if that lasts, check the port in spec.transport"}
		}
		return &Obstacle{mcpv1alpha1.ReasonServerSilent, "the server runs and cannot be connected to: " + cmp.Or(words, "nobody listens") +
			"; check the port in spec.transport, and that the server listens on all addresses or on localhost"}
	case adapterapi.Silent:
		return &Obstacle{mcpv1alpha1.ReasonServerSilent, cmp.Or(words, "the server runs and does not answer") +
			"; check that it speaks what spec.transport says, and " + logsNow(s.pod, mcpv1alpha1.ContainerServer)}
	case adapterapi.Broken:
		check := "; check that it speaks what spec.transport says"
		if !s.stdio {
			check += ", at the port and the path that are there"
		}
		return &Obstacle{mcpv1alpha1.ReasonServerIncompatible, "the server answers, and not as an MCP server does: " + cmp.Or(words, "the adapter does not say how") + check}
	case adapterapi.Starting, adapterapi.NoRoom, adapterapi.Busy, adapterapi.Unauthorized, adapterapi.TooLarge:
	}
	return nil
}

// starting is what is said of a pod of which nothing is known to be wrong.
func (s sick) starting() Obstacle {
	server := containerStatus(s.pod, mcpv1alpha1.ContainerServer)
	isRunning := server != nil && server.State.Running != nil
	r := s.result.Report
	switch {
	case s.now.Sub(startOf(s.pod)) < patience:
		return Obstacle{mcpv1alpha1.ReasonPodsStarting, "it is starting"}
	case !isRunning:
		return Obstacle{mcpv1alpha1.ReasonPodsStarting, fmt.Sprintf("its containers do not run yet: images may still be pulled, or volumes be missing; "+
			"see kubectl describe pod -n %s %s", s.pod.Namespace, s.pod.Name)}
	case r != nil && !r.Ready:
		return Obstacle{mcpv1alpha1.ReasonPodsNotReady, "it runs and is not ready: " + cmp.Or(brief(r.Error), r.Reason)}
	case r != nil:
		return Obstacle{mcpv1alpha1.ReasonPodsNotReady, "its server works and it is not ready: " + s.kubeletSays()}
	case s.result.Message != "":
		return Obstacle{mcpv1alpha1.ReasonPodsNotReady, "it runs and is not ready, and its adapter could not be asked why: " + brief(s.result.Message)}
	default:
		return Obstacle{mcpv1alpha1.ReasonPodsNotReady, "it runs and is not ready: " + s.kubeletSays()}
	}
}

func (s sick) kubeletSays() string {
	if c := podCondition(s.pod, corev1.PodReady); c != nil && (c.Message != "" || c.Reason != "") {
		return cmp.Or(c.Message, c.Reason)
	}
	return "the kubelet does not say why"
}
