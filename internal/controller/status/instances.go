package status

import (
	"cmp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/internal/text"
)

// Limits of the API, in list items and bytes.
const (
	mostInstances = 16
	digestBytes   = 128
)

// Room for instances, and for the messages of all of them together. One message has a part of it.
const (
	instancesBytes       = 8 << 10
	messagesBytes        = 4 << 10
	longestMessageBytes  = 1 << 10
	shortestMessageBytes = messagesBytes / mostInstances
)

// instance is a pod of the server.
type instance struct {
	pod      *corev1.Pod
	ready    bool
	draining bool
	// current is whether it is of the newest template.
	current bool
	// problem is why it is not ready; nil if it is, or need not be.
	problem *problem

	// What came of asking it. An answer is remembered if an earlier manager got it and
	// this manager has not asked yet.
	outcome    prober.Outcome
	message    string
	remembered bool
	digest     string
	tooLarge   string
	flapping   bool
}

// serving says whether clients reach the instance.
func (in *instance) serving() bool { return in.ready && !in.draining }

// lookAtPods makes instances of the pods, by name.
func (v *view) lookAtPods() {
	newest := newestTemplate(v.Observed)
	isStdio := v.Server.Spec.Transport.Type == mcpv1alpha1.TransportStdio
	known := map[string]*mcpv1alpha1.Instance{}
	for i := range v.before.Instances {
		known[v.before.Instances[i].Pod] = &v.before.Instances[i]
	}
	for i := range v.Pods {
		pod := &v.Pods[i]
		if isFinished(pod) {
			continue
		}
		in := instance{pod: pod, ready: PodReady(pod), draining: isDraining(pod)}
		in.current = !in.draining && newest != "" && templateOf(pod) == newest
		result := v.Results[pod.UID]
		in.learn(result, known[pod.Name])
		if !in.ready && !in.draining {
			in.problem = new(unreadyPod{pod, result, isStdio, v.StartTimeout, v.Now.Time}.problem())
		}
		if !in.draining {
			v.live++
		}
		if in.serving() {
			v.ready++
		}
		v.instances = append(v.instances, in)
	}
	slices.SortFunc(v.instances, func(a, b instance) int { return cmp.Compare(a.pod.Name, b.pod.Name) })
}

// noTemplate stands for that of pods without the label of one.
const noTemplate = "none"

func templateOf(pod *corev1.Pod) string {
	return cmp.Or(pod.Annotations[mcpv1alpha1.AnnotationTemplate], pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey], noTemplate)
}

// newestTemplate names the template that the Deployment is bringing its pods to; it is
// empty when no pod is of that one yet. Where it is not known, the youngest pod is of it.
func newestTemplate(o *Observed) string {
	if o.Template != "" {
		return o.Template
	}
	if o.Deployment != nil && o.Deployment.Status.UpdatedReplicas == 0 && o.Deployment.Status.Replicas > 0 {
		return ""
	}
	var youngest *corev1.Pod
	for i := range o.Pods {
		if pod := &o.Pods[i]; !isDraining(pod) && !isFinished(pod) && (youngest == nil || younger(pod, youngest) > 0) {
			youngest = pod
		}
	}
	if youngest == nil {
		return ""
	}
	return templateOf(youngest)
}

// younger compares pods by age, and those of one second by name.
func younger(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// unsaid is what there is to say of an outcome that came without words.
var unsaid = map[prober.Outcome]string{
	prober.Failed:       "the server does not answer as an MCP server does",
	prober.Unreachable:  "it cannot be connected to",
	prober.Full:         "it has no room for another session",
	prober.Unauthorized: "it wants credentials",
}

// learn records what the prober knows about an instance. If the prober does not know yet, it
// records what the status says.
func (in *instance) learn(result prober.Result, before *mcpv1alpha1.Instance) {
	in.outcome, in.message, in.flapping = cmp.Or(result.Outcome, prober.Pending), result.Message, result.Flapping
	if before != nil && before.State == in.state() && in.outcome == prober.Pending {
		if outcome, ok := outcomes[before.Verification]; ok {
			in.outcome, in.message, in.remembered = outcome, before.Message, true
		}
	}
	in.message = cmp.Or(brief(in.message), unsaid[in.outcome])
	switch {
	case result.Catalog != nil:
		in.digest, in.tooLarge = result.Catalog.Summary.Catalog.Digest, result.Catalog.Summary.TooLarge
	case before != nil:
		in.digest = before.CatalogDigest
	}
	if r := result.Report; in.tooLarge == "" && r != nil && r.Reason == string(adapterapi.TooLarge) {
		in.tooLarge = cmp.Or(r.Error, "it hit a limit")
	}
}

// recall keeps to what the adapter of the only pod told an earlier manager was wrong,
// until this one has asked. Of several pods a status does not tell enough for that.
func (v *view) recall() {
	was, _ := v.was(mcpv1alpha1.ConditionAvailable)
	if !isOfServer(was.reason) || v.live != 1 || v.off != "" || v.Deployment == nil || v.behind() {
		return
	}
	in := &v.instances[slices.IndexFunc(v.instances, func(in instance) bool { return !in.draining })]
	if !in.current || !in.isGuess(v.Results[in.pod.UID]) {
		return
	}
	if words, ok := strings.CutPrefix(was.message, "pod "+in.pod.Name+": "); ok {
		in.problem = &problem{Obstacle{was.reason, words}, meta.IsStatusConditionTrue(v.before.Conditions, mcpv1alpha1.ConditionStalled)}
	}
}

// isGuess says whether the adapter might tell another reason why the instance is not
// ready, and was not asked.
func (in *instance) isGuess(result prober.Result) bool {
	if in.problem == nil || result.Report != nil || cmp.Or(result.Outcome, prober.Pending) != prober.Pending {
		return false
	}
	return in.problem.Reason == mcpv1alpha1.ReasonPodsStarting || in.problem.Reason == mcpv1alpha1.ReasonPodsNotReady
}

// instancesOf are the instances as a status has them, those with a problem first.
func instancesOf(v *view) []mcpv1alpha1.Instance {
	var all []mcpv1alpha1.Instance
	problems := 0
	for i := range v.instances {
		in := &v.instances[i]
		one := mcpv1alpha1.Instance{
			Pod: in.pod.Name, State: in.state(), Verification: in.verification(), CatalogDigest: text.Cut(in.digest, digestBytes), Message: in.says(),
		}
		if one.Message != "" {
			problems++
		}
		all = append(all, one)
	}
	slices.SortStableFunc(all, func(a, b mcpv1alpha1.Instance) int { // they are in the order of names
		switch {
		case (a.Message != "") == (b.Message != ""):
			return 0
		case a.Message != "":
			return -1
		default:
			return 1
		}
	})
	most := min(max(messagesBytes/max(problems, 1), shortestMessageBytes), longestMessageBytes)
	return bounded(all, mostInstances, instancesBytes, func(in *mcpv1alpha1.Instance) { in.Message = text.Fit(in.Message, most) })
}

func (in *instance) state() mcpv1alpha1.InstanceState {
	switch {
	case in.draining:
		return mcpv1alpha1.InstanceDraining
	case in.ready:
		return mcpv1alpha1.InstanceReady
	default:
		return mcpv1alpha1.InstanceNotReady
	}
}

// outcomes are those that a status tells.
var outcomes = map[mcpv1alpha1.InstanceVerification]prober.Outcome{
	mcpv1alpha1.InstanceVerified: prober.Verified,
	mcpv1alpha1.InstanceFailed:   prober.Failed,
}

func (in *instance) verification() mcpv1alpha1.InstanceVerification {
	for verification, outcome := range outcomes {
		if in.outcome == outcome {
			return verification
		}
	}
	return mcpv1alpha1.InstanceUnknown
}

// says is what is wrong with the instance, if anything is.
func (in *instance) says() string {
	switch {
	case in.draining:
		return ""
	case in.problem != nil:
		return in.problem.Message
	case in.outcome == prober.Pending:
		return ""
	default:
		return in.message
	}
}
