package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/controller/status"
	"github.com/slipway-mcp/slipway/internal/text"
)

// warnOnce gives the server a warning Event, unless it has got that one since unwarn.
func (r *Reconciler) warnOnce(s *state, reason, action, note string) {
	r.warnOnceAs(s, reason, reason, action, note)
}

// warnOnceAs does the same for one of several warnings that have the same reason.
func (r *Reconciler) warnOnceAs(s *state, warning, reason, action, note string) {
	if s.memory.warned[warning] {
		return
	}
	if s.memory.warned == nil {
		s.memory.warned = map[string]bool{}
	}
	s.memory.warned[warning] = true
	r.Events.Eventf(s.server, nil, corev1.EventTypeWarning, reason, action, "%s", text.Cut(note, noteBytes))
}

// unwarn notes that the reason of a warning is gone.
func (s *state) unwarn(warning string) { delete(s.memory.warned, warning) }

// tellOfFlapping says once that what a server offers changes so often that the manager does not
// follow every change.
func (r *Reconciler) tellOfFlapping(s *state) {
	for _, result := range s.results {
		if result.Flapping {
			r.warnOnce(s, reasonCatalogFlapping, actionProbe,
				"what the server offers keeps changing, so it is read less often: its lists should be the same until they really change")
			return
		}
	}
	s.unwarn(reasonCatalogFlapping)
}

// tellOfExposure says once for each spec what others may see or do. After a restart of the manager there is
// nothing new to say of a spec that it has seen before.
func (r *Reconciler) tellOfExposure(s *state) {
	if s.server.Status.ObservedGeneration == s.server.Generation {
		return
	}
	auth := s.server.Spec.Auth
	if auth == nil && !s.lacksAuth && s.server.Spec.Service.Type == corev1.ServiceTypeLoadBalancer {
		r.warnOnce(s, reasonExposed, actionReconcile,
			"the Service is a load balancer and spec.auth is not set, so anyone who can reach the load balancer can call every tool: set spec.auth, or have something in front that asks for credentials")
	} else {
		s.unwarn(reasonExposed)
	}
	if auth != nil && auth.Mode != mcpv1alpha1.AuthModeServer {
		r.warnOnce(s, reasonPlaintextTokens, actionReconcile,
			"tokens reach the pods over plain HTTP, so anyone who can read the cluster's network traffic can use them: have a service mesh encrypt the traffic, and keep the lifetime of tokens short")
	} else {
		s.unwarn(reasonPlaintextTokens)
	}
}

// tellOfCrashes says once that processes of a server end by themselves.
func (r *Reconciler) tellOfCrashes(s *state, crashes string) {
	if crashes == "" {
		s.unwarn(reasonServerCrashes)
		return
	}
	r.warnOnce(s, reasonServerCrashes, actionProbe, crashes)
}

// delayPatience is how long pods may wait for a node, a quota or a policy before the manager reports it.
const delayPatience = time.Minute

// tellOfDelay says once that pods cannot be created or find no node, if that lasts. The controller
// goes on by itself when it passes, so the server is not stalled.
func (r *Reconciler) tellOfDelay(s *state, next *mcpv1alpha1.MCPServerStatus) {
	why := meta.FindStatusCondition(next.Conditions, mcpv1alpha1.ConditionReconciling)
	for _, reason := range []string{mcpv1alpha1.ReasonPodsUnschedulable, mcpv1alpha1.ReasonPodsNotCreated} {
		if why == nil || why.Reason != reason {
			s.unwarn(reason)
			continue
		}
		if left := delayPatience - s.now.Sub(why.LastTransitionTime.Time); left > 0 {
			s.again(left)
			continue
		}
		r.warnOnce(s, reason, actionReconcile, why.Message)
	}
}

// processesEvery is how often the counts of processes that ended are published at most.
const processesEvery = time.Minute

// processesOf sums up the processes that ended recently in all pods that do not end themselves. While they keep ending,
// the published counts change once a minute only.
func processesOf(s *state) adapterapi.Processes {
	var sum adapterapi.Processes
	var most int64
	terminating := s.terminating()
	for pod, result := range s.results {
		if terminating[pod] {
			continue
		}
		p := result.Processes
		sum.Ended += p.Ended
		sum.Crashed += p.Crashed
		sum.OutOfMemory += p.OutOfMemory
		sum.Unstartable += p.Unstartable
		if failed := p.Failed(); failed > most || failed == most && failed > 0 && p.Cause < sum.Cause {
			most, sum.Cause = failed, p.Cause
		}
	}
	published, wait := s.memory.processes.publish(sum, s.now)
	if wait > 0 {
		s.again(wait)
	}
	return published
}

// publishedProcesses is what was published of a server's processes, and when.
type publishedProcesses struct {
	sum  adapterapi.Processes
	when time.Time // zero if nothing was
}

// publish returns the counts to publish, and how long others have to wait for that. Counts that
// make a difference to users do not wait.
func (p *publishedProcesses) publish(sum adapterapi.Processes, now time.Time) (adapterapi.Processes, time.Duration) {
	known := !p.when.IsZero()
	if known && p.sum == sum {
		return sum, 0
	}
	wait := processesEvery - now.Sub(p.when)
	if known && wait > 0 && status.AreTold(p.sum) == status.AreTold(sum) {
		return p.sum, wait
	}
	*p = publishedProcesses{sum, now}
	return sum, 0
}
