package status

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/diagnosis"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/internal/reason"
)

// problem is why a pod is not ready.
type problem struct {
	Obstacle
	// stalls is true if the user must act: the kubelet or the adapter has tried more than once,
	// or another try cannot help.
	stalls bool
}

// secondTry is how many failures in a row make a problem one that the user must act on.
const secondTry = 2

// unreadyPod is a pod that is not ready.
type unreadyPod struct {
	pod          *corev1.Pod
	result       prober.Result
	stdio        bool // what the server speaks
	startTimeout time.Duration
	now          time.Time
}

// problem says why a pod is not ready: what keeps it from a node, then what keeps its containers
// from running, then what the adapter says of its server. The text stays the same while the
// kubelet restarts a container again and again.
func (u unreadyPod) problem() problem {
	for _, find := range []func() *problem{u.scheduling, u.pulling, u.adapter, u.server, u.creating, u.report} {
		if found := find(); found != nil {
			return *found
		}
	}
	return u.starting()
}

func (u unreadyPod) scheduling() *problem {
	c := podCondition(u.pod, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse {
		return nil
	}
	return passing(mcpv1alpha1.ReasonPodsUnschedulable, "no node takes it: "+cmp.Or(c.Message, c.Reason))
}

// passing is a problem that may pass without the user.
func passing(why, message string) *problem { return &problem{Obstacle{why, message}, false} }

// pullAdvice has the kubelet's reasons for not having an image, and what to do.
var pullAdvice = map[string]reason.Remedy{
	"ErrImagePull":              reason.CheckPullSecrets,
	"ImagePullBackOff":          reason.CheckPullSecrets,
	"RegistryUnavailable":       reason.CheckRegistry,
	invalidImageName:            reason.CorrectImage,
	"ErrImageNeverPull":         reason.BringImage,
	"ImageInspectError":         reason.CheckRuntime,
	"SignatureValidationFailed": reason.SignImage,
}

// invalidImageName is the kubelet's reason for what is no name of an image. No other try changes that.
const invalidImageName = "InvalidImageName"

// backOff begins the kubelet's message between two attempts. The message of each attempt follows it.
var backOff = regexp.MustCompile(`^Back-off pulling image "[^"]*"(: )?(ErrImagePull: )?`)

func (u unreadyPod) pulling() *problem {
	for _, name := range []string{mcpv1alpha1.ContainerServer, mcpv1alpha1.ContainerAdapter} {
		c := containerStatus(u.pod, name)
		if c == nil || c.State.Waiting == nil || pullAdvice[c.State.Waiting.Reason] == "" {
			continue
		}
		waiting := c.State.Waiting
		words := brief(backOff.ReplaceAllString(waiting.Message, ""))
		text := fmt.Sprintf("the image %s cannot be pulled: %s; %s", c.Image, cmp.Or(words, "the kubelet does not say why"), pullAdvice[waiting.Reason])
		if name == mcpv1alpha1.ContainerAdapter {
			text = fmt.Sprintf("the adapter's image %s cannot be pulled: %s; %s",
				c.Image, cmp.Or(words, waiting.Reason), reason.BringAdapter)
		}
		// The kubelet does not tell how often it has tried.
		return &problem{Obstacle{mcpv1alpha1.ReasonImagePullFailed, text}, waiting.Reason == invalidImageName || u.isLate(creatingSince(u.pod))}
	}
	return nil
}

// isLate says whether more time has passed than the kubelet needs for a second try.
func (u unreadyPod) isLate(since time.Time) bool { return u.now.Sub(since) >= patience }

// adapter says what is wrong with the adapter's container.
func (u unreadyPod) adapter() *problem {
	c := containerStatus(u.pod, mcpv1alpha1.ContainerAdapter)
	if c == nil {
		return nil
	}
	// Its hook fails, too, when it ends so early, and says less.
	if port := takenPort(u.end(c)); port != "" {
		return passing(mcpv1alpha1.ReasonPodsNotReady, fmt.Sprintf("the adapter cannot listen on port %s, because another process of the pod does; %s; %s",
			port, reason.OtherPorts, logsOf(u.pod, mcpv1alpha1.ContainerAdapter)))
	}
	if words := notCreated(c); words != "" {
		return passing(mcpv1alpha1.ReasonPodsNotReady, "the adapter's container cannot be started: "+words)
	}
	if end := u.end(c); end != nil {
		return passing(mcpv1alpha1.ReasonPodsNotReady, "the adapter's container ended: "+exit(end, reason.MoreAdapterMemory)+
			"; "+logsOf(u.pod, mcpv1alpha1.ContainerAdapter))
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

// server says why the server's container does not run, or has ended before.
func (u unreadyPod) server() *problem {
	c := containerStatus(u.pod, mcpv1alpha1.ContainerServer)
	if c == nil {
		return nil
	}
	if words := notCreated(c); words != "" {
		if c.State.Waiting.Reason == "CreateContainerConfigError" {
			// What is missing may come: the kubelet tries again.
			return passing(mcpv1alpha1.ReasonPodsNotReady, "the server's container cannot be created: "+words)
		}
		stalls := u.hasFailedTwice(c) || u.isLate(creatingSince(u.pod))
		return &problem{Obstacle{mcpv1alpha1.ReasonServerExits, "the server cannot be started: " + words + "; " + string(reason.CheckCommand)}, stalls}
	}
	end := u.end(c)
	switch {
	case end == nil:
		return nil
	case end.Reason == "StartError" || end.Reason == "ContainerCannotRun":
		text := "the server cannot be started: " + cmp.Or(brief(end.Message), end.Reason) + "; " + string(reason.CheckCommand)
		return &problem{Obstacle{mcpv1alpha1.ReasonServerExits, text}, u.hasFailedTwice(c)}
	default:
		text := "the server's container ended: " + exit(end, reason.MoreMemory)
		if end.Reason != oomKilled {
			text += "; " + string(reason.CorrectServer)
		}
		text += "; " + logsOf(u.pod, mcpv1alpha1.ContainerServer)
		return &problem{Obstacle{mcpv1alpha1.ReasonServerExits, text}, u.hasFailedTwice(c)}
	}
}

// crashBackOff is how long a container must run for the kubelet to forget that it ended before.
const crashBackOff = 10 * time.Minute

// hasFailedTwice says whether a container ended, and ended again soon after the kubelet restarted it.
// The number of restarts alone says little: it counts for the life of the pod.
func (u unreadyPod) hasFailedTwice(c *corev1.ContainerStatus) bool {
	failures := c.RestartCount
	if c.State.Running == nil {
		failures++
	}
	before := c.LastTerminationState.Terminated
	isRecent := before == nil || before.FinishedAt.IsZero() || u.now.Sub(before.FinishedAt.Time) < crashBackOff
	return failures >= secondTry && isRecent
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

// end is how a container ended that does not run, or runs again only since a short while: the
// reason of one that keeps ending stays the same between two attempts.
func (u unreadyPod) end(c *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case c.State.Terminated != nil:
		return c.State.Terminated
	case c.State.Running != nil && u.isLate(c.State.Running.StartedAt.Time):
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
func exit(end *corev1.ContainerStateTerminated, moreMemory reason.Remedy) string {
	text := exitBrief(end)
	if end.Reason == oomKilled {
		text = "it ran out of memory and was killed"
	}
	if lines := diagnosis.Lines("", end.Message); lines != "" {
		text += "; it wrote: " + lines
	}
	if end.Reason == oomKilled {
		text += "; " + string(moreMemory)
	}
	return text
}

// oomKilled is the kubelet's reason for a container that the kernel killed for its memory.
const oomKilled = "OOMKilled"

// exitBrief says how a container ended, without what it wrote.
func exitBrief(end *corev1.ContainerStateTerminated) string {
	const signaled = 128 // what shells and container runtimes add to a signal's number
	switch {
	case end.Reason == oomKilled:
		return "out of memory"
	case end.Signal != 0:
		return fmt.Sprintf("by signal %d", end.Signal)
	case end.ExitCode > signaled:
		return fmt.Sprintf("exit code %d (signal %d)", end.ExitCode, end.ExitCode-signaled)
	case end.ExitCode < 0:
		return "it keeps ending"
	default:
		return fmt.Sprintf("exit code %d", end.ExitCode)
	}
}

// logsOf is where to find what a container wrote before it was restarted.
func logsOf(pod *corev1.Pod, container string) string {
	return logsNow(pod, container) + " --previous"
}

// logsNow is where to find what a running container has written.
func logsNow(pod *corev1.Pod, container string) string {
	return fmt.Sprintf("see kubectl logs -n %s %s -c %s", pod.Namespace, pod.Name, container)
}

// creating is a pod whose server does not run yet. Its adapter may run already, and knows nothing
// about the server then.
func (u unreadyPod) creating() *problem {
	server, scheduled := containerStatus(u.pod, mcpv1alpha1.ContainerServer), podCondition(u.pod, corev1.PodScheduled)
	if server == nil && scheduled == nil || server != nil && server.State.Running != nil {
		return nil
	}
	since := creatingSince(u.pod)
	what := "the server's container"
	if adapter := containerStatus(u.pod, mcpv1alpha1.ContainerAdapter); adapter == nil || adapter.State.Running == nil {
		what = "the adapter's container"
	}
	text := fmt.Sprintf("%s is being created since %s: the kubelet may still be pulling its image or mounting volumes", what, at(since))
	if u.isLate(since) {
		text += fmt.Sprintf("; see kubectl describe pod -n %s %s", u.pod.Namespace, u.pod.Name)
	}
	return passing(mcpv1alpha1.ReasonPodsStarting, text)
}

// report is what the adapter says is wrong with its server. The user must correct a server that
// ends, cannot be started, or does not speak MCP.
func (u unreadyPod) report() *problem {
	r := u.result.Report
	if r == nil || r.Ready {
		return nil
	}
	words := brief(r.Error)
	final := func(why, message string) *problem {
		return &problem{Obstacle{why, message}, r.Failures >= secondTry}
	}
	switch adapterapi.Reason(r.Reason) {
	case adapterapi.Exited:
		// The launcher runs on, so all that its processes write is in one log.
		remedy := reason.CorrectServer
		if strings.Contains(words, endedForMemory) {
			remedy = reason.MoreMemory
		}
		return final(mcpv1alpha1.ReasonServerExits, cmp.Or(words, "the server's process ended by itself")+"; "+string(remedy)+"; "+logsNow(u.pod, mcpv1alpha1.ContainerServer))
	case adapterapi.Unstartable:
		if u.stdio {
			return final(mcpv1alpha1.ReasonServerExits, "the server cannot be started: "+cmp.Or(words, "the adapter does not say why")+"; "+string(startAdvice(words)))
		}
		return u.notListening(words)
	case adapterapi.Silent:
		return final(mcpv1alpha1.ReasonServerSilent, cmp.Or(words, "the server runs and does not answer")+
			"; "+string(reason.CheckTransport)+", and "+logsNow(u.pod, mcpv1alpha1.ContainerServer))
	case adapterapi.Broken:
		check := reason.CheckTransport
		if !u.stdio {
			check = reason.CheckEndpoint
		}
		return final(mcpv1alpha1.ReasonServerIncompatible, "the server responds, but not with valid MCP: "+cmp.Or(words, "the adapter does not say how")+"; "+string(check))
	case adapterapi.Starting, adapterapi.NoRoom, adapterapi.Busy, adapterapi.Unauthorized, adapterapi.TooLarge:
	}
	return nil
}

// endedForMemory is what an adapter says of a process that the kernel killed for its memory.
const endedForMemory = "ended: out of memory"

// startAdvice is what helps against a start that failed. The adapter says so if the container has no
// memory, or too many processes, for another one.
func startAdvice(words string) reason.Remedy {
	switch {
	case strings.Contains(words, "(memory)"), strings.Contains(words, endedForMemory):
		return reason.MoreMemory
	case strings.Contains(words, "(pids)"):
		return reason.MoreProcesses
	default:
		return reason.CheckCommand
	}
}

// notListening is an HTTP server to which the adapter cannot connect. The adapter counts a failure
// for each start timeout that passes so.
func (u unreadyPod) notListening(words string) *problem {
	since := runningSince(u.pod)
	if u.now.Sub(since) < u.startTimeout {
		return passing(mcpv1alpha1.ReasonPodsStarting, fmt.Sprintf("the server runs since %s and does not listen yet: %s; %s",
			at(since), cmp.Or(words, "no process answers"), reason.CheckPortLater))
	}
	return &problem{Obstacle{mcpv1alpha1.ReasonServerSilent, "the server runs and cannot be connected to: " + cmp.Or(words, "no process listens") +
		"; " + string(reason.CheckPort)}, u.result.Report.Failures > 0}
}

// starting is a pod of which nothing is known to be wrong.
func (u unreadyPod) starting() problem {
	since, r := runningSince(u.pod), u.result.Report
	switch {
	case since.IsZero():
		return *passing(mcpv1alpha1.ReasonPodsStarting, "it waits for a node since "+at(u.pod.CreationTimestamp.Time))
	case r != nil && !r.Ready && adapterapi.Reason(r.Reason) == adapterapi.Starting:
		return *passing(mcpv1alpha1.ReasonPodsStarting, fmt.Sprintf("the server runs since %s and has not answered yet; spec.session.startTimeout gives each process %s",
			at(since), u.startTimeout))
	case !u.isLate(since):
		return *passing(mcpv1alpha1.ReasonPodsStarting, "the server runs since "+at(since)+" and is not ready yet")
	case r != nil && !r.Ready:
		return *passing(mcpv1alpha1.ReasonPodsNotReady, "it runs and is not ready: "+cmp.Or(brief(r.Error), r.Reason))
	case r != nil:
		return *passing(mcpv1alpha1.ReasonPodsNotReady, "its server works and it is not ready: "+u.kubeletSays())
	case u.result.Message != "":
		return *passing(mcpv1alpha1.ReasonPodsNotReady, "it runs and is not ready, and its adapter could not be asked why: "+brief(u.result.Message))
	default:
		return *passing(mcpv1alpha1.ReasonPodsNotReady, "it runs and is not ready: "+u.kubeletSays())
	}
}

func (u unreadyPod) kubeletSays() string {
	if c := podCondition(u.pod, corev1.PodReady); c != nil && (c.Message != "" || c.Reason != "") {
		return cmp.Or(c.Message, c.Reason)
	}
	return "the kubelet does not say why"
}
