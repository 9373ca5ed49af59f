package status

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/prober"
)

const (
	reconciling = mcpv1alpha1.ConditionReconciling
	stalled     = mcpv1alpha1.ConditionStalled
)

// What can be wrong with the only pod.
func TestWhatIsWrongWithAPod(t *testing.T) {
	exited := terminated(1, "Error", "")
	const portIsTaken = "adapter: --admin-listen: listen tcp :16271: bind: address already in use\n"
	for name, test := range map[string]struct {
		change func(*Observed)
		pod    func(*corev1.Pod)
		result prober.Result
		want   string   // reason of Available
		with   string   // Reconciling or Stalled
		words  []string // in the message
	}{
		"no node": {
			pod: func(p *corev1.Pod) {
				p.Status = corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available"}}}
			},
			want: "PodsUnschedulable", with: reconciling, words: []string{"pod a:", "0/3 nodes are available"},
		},
		"gated": {
			pod: func(p *corev1.Pod) {
				p.Status = corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "SchedulingGated"}}}
			},
			want: "PodsUnschedulable", with: reconciling, words: []string{"SchedulingGated"},
		},
		"ErrImagePull": {
			pod:  func(p *corev1.Pod) { serverOf(p).State = waiting("ErrImagePull", "rpc error: not found") },
			want: "ImagePullFailed", with: stalled, words: []string{"the image registry.example/x:1 cannot be pulled: rpc error: not found;", "spec.imagePullSecrets"},
		},
		"ImagePullBackOff": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State = waiting("ImagePullBackOff", `Back-off pulling image "registry.example/x:1": ErrImagePull: rpc error: not found`)
			},
			want: "ImagePullFailed", with: stalled, words: []string{"the image registry.example/x:1 cannot be pulled: rpc error: not found;"},
		},
		"ImagePullBackOff without a cause": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State = waiting("ImagePullBackOff", `Back-off pulling image "registry.example/x:1"`)
			},
			want: "ImagePullFailed", with: stalled, words: []string{"the kubelet does not say why"},
		},
		"InvalidImageName": {
			pod:  func(p *corev1.Pod) { serverOf(p).State = waiting("InvalidImageName", "couldn't parse image name") },
			want: "ImagePullFailed", with: stalled, words: []string{"couldn't parse", "correct spec.image"},
		},
		"ErrImageNeverPull": {
			pod:  func(p *corev1.Pod) { serverOf(p).State = waiting("ErrImageNeverPull", "not present") },
			want: "ImagePullFailed", with: stalled, words: []string{"spec.imagePullPolicy"},
		},
		"the adapter's image": {
			pod: func(p *corev1.Pod) {
				adapterOf(p).State = waiting("ErrImagePull", "denied")
				serverOf(p).State = waiting("PodInitializing", "")
			},
			want: "ImagePullFailed", with: stalled, words: []string{"the adapter's image slipway/adapter:1 cannot be pulled: denied", "your platform team"},
		},
		"a key is missing": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State = waiting("CreateContainerConfigError", "couldn't find key k in Secret ns/s")
			},
			want: "PodsNotReady", with: reconciling, words: []string{"couldn't find key k in Secret ns/s"},
		},
		"ErrImagePull for the first time": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State, adapterOf(p).State = waiting("ErrImagePull", "HTTP 429"), startedAgo(59*time.Second)
			},
			want: "ImagePullFailed", with: reconciling, words: []string{"cannot be pulled: HTTP 429;"},
		},
		"InvalidImageName at once": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State, adapterOf(p).State = waiting("InvalidImageName", "no"), startedAgo(time.Second)
			},
			want: "ImagePullFailed", with: stalled, words: []string{"correct spec.image"},
		},
		"the command is not there, for the first time": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State, adapterOf(p).State = waiting("RunContainerError", "exec: not found"), startedAgo(time.Second)
			},
			want: "ServerExits", with: reconciling, words: []string{"exec: not found", "check spec.command"},
		},
		"the server's container ended for the first time": {
			pod:  func(p *corev1.Pod) { serverOf(p).State = terminated(3, "Error", "no database yet") },
			want: "ServerExits", with: reconciling, words: []string{"exit code 3; it wrote: no database yet"},
		},
		"the server's container was restarted, and has not ended again": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State, serverOf(p).LastTerminationState, serverOf(p).RestartCount = startedAgo(time.Second), exited, 1
			},
			want: "ServerExits", with: reconciling, words: []string{"exit code 1"},
		},
		"the server's container ended again after a week": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State, serverOf(p).RestartCount = exited, 1
				serverOf(p).LastTerminationState = terminated(1, "Error", "")
				serverOf(p).LastTerminationState.Terminated.FinishedAt = ago(7 * 24 * time.Hour)
			},
			want: "ServerExits", with: reconciling, words: []string{"exit code 1"},
		},
		"ErrImagePull after a restart": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State, serverOf(p).LastTerminationState = waiting("ErrImagePull", "HTTP 429"), terminated(1, "Error", "")
				serverOf(p).LastTerminationState.Terminated.FinishedAt = ago(time.Second)
			},
			want: "ImagePullFailed", with: reconciling, words: []string{"HTTP 429"},
		},
		"there is no memory for a process": {
			result: reported(adapterapi.Unstartable, "no room for another server process: process refused (memory): 29 of 32 MiB in use"),
			want:   "ServerExits", with: stalled, words: []string{"29 of 32 MiB in use; raise spec.resources.limits.memory"},
		},
		"the kernel kills the process that all sessions share": {
			result: reported(adapterapi.Unstartable, "initialize server: the server's process ended: out of memory: killed by the kernel"),
			want:   "ServerExits", with: stalled, words: []string{"killed by the kernel; raise spec.resources.limits.memory"},
		},
		"the HTTP server listens no more": {
			change: func(o *Observed) { o.Server.Spec.Transport.Type = mcpv1alpha1.TransportStreamableHTTP },
			result: failed(0, adapterapi.Unstartable, "connection refused"),
			want:   "ServerSilent", with: reconciling, words: []string{"connection refused"},
		},
		"the server's container ended again": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State, serverOf(p).LastTerminationState, serverOf(p).RestartCount = exited, exited, 1
			},
			want: "ServerExits", with: stalled, words: []string{"exit code 1"},
		},
		"the kernel kills the process for its memory": {
			result: reported(adapterapi.Exited, "the server's process ended: out of memory: killed by the kernel"),
			want:   "ServerExits", with: stalled,
			words: []string{"out of memory: killed by the kernel; raise spec.resources.limits.memory; see kubectl logs"},
		},
		"the process ends for the first time": {
			result: failed(1, adapterapi.Exited, "exit code 7"),
			want:   "ServerExits", with: reconciling, words: []string{"exit code 7"},
		},
		"the server is silent for the first time": {
			result: failed(1, adapterapi.Silent, "the server runs and has not answered for 60s"),
			want:   "ServerSilent", with: reconciling, words: []string{"has not answered for 60s"},
		},
		"the image is being pulled, and the adapter has no launcher": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State, adapterOf(p).State = waiting("PodInitializing", ""), startedAgo(21*time.Second)
			},
			result: reported(adapterapi.Unstartable, "start server: no launcher is connected"),
			want:   "PodsStarting", with: reconciling, words: []string{"the server's container is being created since 2026-08-01T11:59:39Z", "pulling its image"},
		},
		"the adapter's image is being pulled": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State, adapterOf(p).State, p.CreationTimestamp = waiting("PodInitializing", ""), waiting("PodInitializing", ""), ago(5*time.Second)
			},
			want: "PodsStarting", with: reconciling, words: []string{"the adapter's container is being created since 2026-08-01T11:59:55Z"},
		},
		"the command is not there": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State = waiting("RunContainerError", `exec: "nodee": executable file not found in $PATH`)
			},
			want: "ServerExits", with: stalled, words: []string{`exec: "nodee"`, "check spec.command"},
		},
		"the command is not there, again": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State = waiting("CrashLoopBackOff", "back-off 40s restarting")
				serverOf(p).LastTerminationState = terminated(128, "StartError", `exec: "nodee": executable file not found in $PATH`)
				serverOf(p).RestartCount = 1
			},
			want: "ServerExits", with: stalled, words: []string{`cannot be started: exec: "nodee"`, "check spec.command"},
		},
		"the server's container ended": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State = terminated(3, "Error", "a\nb\nc\n"+strings.Repeat("x\n", 9)+"one\ntwo\nthree\nfour\nfive\n")
				serverOf(p).RestartCount = 1
			},
			want: "ServerExits", with: stalled,
			words: []string{"exit code 3; it wrote: a\nb\nc\n…\none\ntwo\nthree\nfour\nfive; resolve the error in its output, which often points to spec.env, spec.envFrom or spec.args; see kubectl logs -n ns a -c mcp-server --previous"},
		},
		"it ran out of memory": {
			pod:  func(p *corev1.Pod) { serverOf(p).State, serverOf(p).RestartCount = terminated(137, "OOMKilled", ""), 1 },
			want: "ServerExits", with: stalled, words: []string{"ran out of memory", "raise spec.resources.limits.memory"},
		},
		"it was killed": {
			pod:  func(p *corev1.Pod) { serverOf(p).State, serverOf(p).RestartCount = terminated(137, "Error", ""), 1 },
			want: "ServerExits", with: stalled, words: []string{"exit code 137 (signal 9)"},
		},
		"it waits to be started again": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State, serverOf(p).LastTerminationState, serverOf(p).RestartCount = waiting("CrashLoopBackOff", "back-off 2m40s"), exited, 5
			},
			want: "ServerExits", with: stalled, words: []string{"exit code 1"},
		},
		"it was just started again": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State, serverOf(p).LastTerminationState, serverOf(p).RestartCount = startedAgo(time.Second), exited, 2
			},
			result: reported(adapterapi.Unstartable, "connection refused"),
			want:   "ServerExits", with: stalled, words: []string{"exit code 1"},
		},
		"it was started again long ago": {
			pod: func(p *corev1.Pod) {
				serverOf(p).State, serverOf(p).LastTerminationState = startedAgo(time.Hour), exited
			},
			result: reported(adapterapi.Silent, "no answer for 5s"),
			want:   "ServerSilent", with: stalled, words: []string{"no answer for 5s", "spec.transport"},
		},
		"the adapter ends": {
			pod:  func(p *corev1.Pod) { adapterOf(p).State = terminated(2, "Error", "panic") },
			want: "PodsNotReady", with: reconciling, words: []string{"the adapter's container ended: exit code 2; it wrote: panic", "-c mcp-adapter"},
		},
		"the adapter's port is taken": {
			pod:  func(p *corev1.Pod) { adapterOf(p).State = terminated(1, "Error", portIsTaken) },
			want: "PodsNotReady", with: reconciling,
			words: []string{"the adapter cannot listen on port 16271, because another process of the pod does", "listen on ports other than 16270, 16271 and 16272", "-c mcp-adapter"},
		},
		"the adapter's port is taken, and its hook fails": {
			pod: func(p *corev1.Pod) {
				adapterOf(p).State, adapterOf(p).LastTerminationState = waiting("PostStartHookError", "hook failed"), terminated(1, "Error", portIsTaken)
			},
			want: "PodsNotReady", with: reconciling, words: []string{"the adapter cannot listen on port 16271"},
		},
		"the adapter's port is taken, and it is tried again": {
			pod: func(p *corev1.Pod) {
				adapterOf(p).State, adapterOf(p).LastTerminationState = startedAgo(time.Second), terminated(1, "Error", portIsTaken)
			},
			want: "PodsNotReady", with: reconciling, words: []string{"the adapter cannot listen on port 16271"},
		},
		"the adapter cannot be prepared": {
			pod:  func(p *corev1.Pod) { adapterOf(p).State = waiting("PostStartHookError", "hook failed") },
			want: "PodsNotReady", with: reconciling, words: []string{"hook failed"},
		},
		"the process ends": {
			result: reported(adapterapi.Exited, "the server's process ended: exit code 7; its last lines on standard error: a\nb\nc\n"+strings.Repeat("old\n", 20)+"1\n2\n3\n4\nno such table"),
			want:   "ServerExits", with: stalled,
			words: []string{"pod a: the server's process ended: exit code 7; its last lines on standard error: a\nb\nc\n…\n1\n2\n3\n4\nno such table; resolve the error in its output, which often points to spec.env, spec.envFrom or spec.args; see kubectl logs -n ns a -c mcp-server"},
		},
		"the process ends with a stack trace": {
			result: reported(adapterapi.Exited, "the server's process ended: exit code 1; its last lines on standard error: Error: DATABASE_URL is not set\n"+
				strings.Repeat("    at run (node:internal/main:1:2)\n", 9)+"\nNode.js v26.10.0\n"),
			want: "ServerExits", with: stalled,
			words: []string{"exit code 1; its last lines on standard error: Error: DATABASE_URL is not set; resolve the error in its output, which often points to spec.env, spec.envFrom or spec.args; see kubectl logs -n ns a -c mcp-server"},
		},
		"the process cannot be started": {
			result: reported(adapterapi.Unstartable, "nodee: no such file"),
			want:   "ServerExits", with: stalled, words: []string{"the server cannot be started: nodee: no such file", "check spec.command"},
		},
		"the HTTP server does not listen yet": {
			change: func(o *Observed) { o.Server.Spec.Transport.Type = mcpv1alpha1.TransportStreamableHTTP },
			pod:    func(p *corev1.Pod) { serverOf(p).State = startedAgo(time.Second) },
			result: reported(adapterapi.Unstartable, "connection refused"),
			want:   "PodsStarting", with: reconciling, words: []string{"the server runs since 2026-08-01T11:59:59Z and does not listen yet: connection refused", "check the port"},
		},
		"the HTTP server does not listen": {
			change: func(o *Observed) { o.Server.Spec.Transport.Type = mcpv1alpha1.TransportStreamableHTTP },
			result: reported(adapterapi.Unstartable, "connection refused"),
			want:   "ServerSilent", with: stalled, words: []string{"connection refused", "check the port in spec.transport"},
		},
		"the server is silent": {
			result: reported(adapterapi.Silent, "the server runs and has not answered for 5s"),
			want:   "ServerSilent", with: stalled, words: []string{"has not answered for 5s", "kubectl logs -n ns a -c mcp-server"},
		},
		"the server speaks something else": {
			result: reported(adapterapi.Broken, "invalid character 'H'"),
			want:   "ServerIncompatible", with: stalled, words: []string{"not with valid MCP: invalid character 'H'; check that spec.transport matches the server"},
		},
		"the HTTP server has another path": {
			change: func(o *Observed) { o.Server.Spec.Transport.Type = mcpv1alpha1.TransportStreamableHTTP },
			result: reported(adapterapi.Broken, "probe connect: Rejected (POST http://127.0.0.1:3000/mcp: HTTP 404)"),
			want:   "ServerIncompatible", with: stalled, words: []string{"POST http://127.0.0.1:3000/mcp: HTTP 404", "has the server's type, port and path"},
		},
		"there is no room": {
			result: reported(adapterapi.NoRoom, "no room for another process"),
			want:   "PodsNotReady", with: reconciling, words: []string{"no room for another process"},
		},
		"it is starting": {
			pod:    func(p *corev1.Pod) { serverOf(p).State = startedAgo(59 * time.Second) },
			result: reported(adapterapi.Starting, "the server is starting"),
			want:   "PodsStarting", with: reconciling, words: []string{"the server runs since 2026-08-01T11:59:01Z and has not answered yet; spec.session.startTimeout gives each process 1m0s"},
		},
		"it takes long to start": {
			change: func(o *Observed) { o.StartTimeout = time.Hour },
			pod:    func(p *corev1.Pod) { serverOf(p).State = startedAgo(59 * time.Minute) },
			result: reported(adapterapi.Starting, "the server is starting"),
			want:   "PodsStarting", with: reconciling, words: []string{"has not answered yet", "1h0m0s"},
		},
		"the HTTP server takes long to start": {
			change: func(o *Observed) {
				o.Server.Spec.Transport.Type, o.StartTimeout = mcpv1alpha1.TransportStreamableHTTP, time.Hour
			},
			pod:    func(p *corev1.Pod) { serverOf(p).State = startedAgo(59 * time.Minute) },
			result: reported(adapterapi.Unstartable, "connection refused"),
			want:   "PodsStarting", with: reconciling, words: []string{"does not listen yet"},
		},
		"its containers are not created": {
			pod:  func(p *corev1.Pod) { serverOf(p).State = waiting("ContainerCreating", "") },
			want: "PodsStarting", with: reconciling, words: []string{"the server's container is being created since 2026-08-01T11:00:00Z", "mounting volumes", "kubectl describe pod -n ns a"},
		},
		"it has no status": {
			pod:  func(p *corev1.Pod) { p.Status, p.CreationTimestamp = corev1.PodStatus{}, now },
			want: "PodsStarting", with: reconciling, words: []string{"it waits for a node since 2026-08-01T12:00:00Z"},
		},
		"its adapter cannot be asked": {
			result: prober.Result{Outcome: prober.Unreachable, Message: "dial tcp: timeout"},
			want:   "PodsNotReady", with: reconciling, words: []string{"could not be asked why: dial tcp: timeout"},
		},
		"the kubelet disagrees": {
			result: prober.Result{Outcome: prober.Verified, Report: &prober.Report{Ready: true}},
			want:   "PodsNotReady", with: reconciling, words: []string{"its server works", "containers with unready status"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			o.sickPod(func(p *corev1.Pod) {
				if test.pod != nil {
					test.pod(p)
				}
			})
			if test.change != nil {
				test.change(o)
			}
			o.Results = map[types.UID]prober.Result{"a": test.result}
			got := Compute(*o)
			c := find(t, got, mcpv1alpha1.ConditionAvailable)
			wantEqual(t, "Available", "False/"+test.want, string(c.Status)+"/"+c.Reason)
			wantContains(t, c.Message, test.words...)
			with := find(t, got, test.with)
			wantEqual(t, "reason and message of "+test.with, [2]string{c.Reason, c.Message}, [2]string{with.Reason, with.Message})
			wantContains(t, "pod a: "+got.Instances[0].Message, test.words...)
		})
	}
}

// Nothing that a container which keeps ending goes through makes for another status.
func TestCrashLoopIsOneStatus(t *testing.T) {
	o := working()
	o.sickPod(func(p *corev1.Pod) { serverOf(p).State, serverOf(p).RestartCount = terminated(1, "Error", "boom"), 1 })
	want := o.then()
	for _, state := range []corev1.ContainerState{waiting("CrashLoopBackOff", "back-off 10s"), startedAgo(time.Second), waiting("CrashLoopBackOff", "back-off 20s")} {
		serverOf(&o.Pods[0]).State, serverOf(&o.Pods[0]).LastTerminationState = state, terminated(1, "Error", "boom")
		serverOf(&o.Pods[0]).RestartCount++
		wantEqual(t, "status", want, o.then())
	}
}

func TestAvailableOfSeveralPods(t *testing.T) {
	sickly := func(name string, state corev1.ContainerState) corev1.Pod {
		pod := podNamed(name)
		unready(&pod)
		serverOf(&pod).State, serverOf(&pod).RestartCount = state, 1
		return pod
	}
	pulling, crashed, creating := waiting("ErrImagePull", "no"), terminated(1, "", ""), waiting("ContainerCreating", "")
	draining := podNamed("d")
	draining.DeletionTimestamp = &now
	evicted := podNamed("e")
	evicted.Status.Phase = corev1.PodFailed
	oldPod := podNamed("old")
	old(&oldPod)
	oldCrashed := sickly("old", crashed)
	old(&oldCrashed)
	rollout := func(o *Observed, pods ...corev1.Pod) { // of which one is new
		o.setPods(1, pods...)
		o.Deployment.Status.UpdatedReplicas = 1
	}

	for name, test := range map[string]struct {
		change func(*Observed)
		want   string // Available and progress
		words  string // in the message of the last condition
	}{
		"all are ready": {func(o *Observed) { o.setPods(2, podNamed("a"), podNamed("b")) }, "True/Available", ""},
		"one of two is starting": {
			func(o *Observed) { o.setPods(2, podNamed("a"), sickly("b", creating)) },
			"True/Available Reconciling/Progressing", "1 of 2 pods ready; pod b: the server's container is being created",
		},
		"one of two was not created": {
			func(o *Observed) {
				o.setPods(2, podNamed("a"))
				o.Deployment.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota: q"}}
			}, "True/Available Reconciling/PodsNotCreated", "pods cannot be created: exceeded quota: q",
		},
		"none was created": {
			func(o *Observed) {
				o.setPods(2)
				o.Deployment.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "violates PodSecurity"}}
			}, "False/PodsNotCreated Reconciling/PodsNotCreated", "violates PodSecurity",
		},
		"none was created yet": {func(o *Observed) { o.setPods(2) }, "False/PodsStarting Reconciling/PodsStarting", "being created"},
		"one of two crashes": {
			func(o *Observed) { o.setPods(2, podNamed("a"), sickly("b", crashed)) },
			"True/Available Stalled/ServerExits", "pod b:",
		},
		"the worst is told": {
			func(o *Observed) { o.setPods(4, sickly("a", creating), sickly("b", crashed), sickly("c", pulling)) },
			"False/ImagePullFailed Stalled/ImagePullFailed", "pod c:",
		},
		"of equals the first is told": {
			func(o *Observed) { o.setPods(3, sickly("c", crashed), sickly("b", crashed), sickly("a", crashed)) },
			"False/ServerExits Stalled/ServerExits", "(and the like in 2 other pods)",
		},
		"a draining pod does not count": {
			func(o *Observed) { o.setPods(1, draining, sickly("a", crashed)) },
			"False/ServerExits Stalled/ServerExits", "pod a:",
		},
		"an evicted pod does not count": {
			func(o *Observed) { o.setPods(1, evicted); o.Deployment.Status.Replicas = 0 },
			"False/PodsStarting Reconciling/PodsStarting", "",
		},
		"new pods start beside an old one": {
			func(o *Observed) { rollout(o, oldPod, sickly("a", creating)) },
			"True/Available Reconciling/Progressing", "pod a:",
		},
		"new pods cannot start beside an old one": {
			func(o *Observed) { rollout(o, oldPod, sickly("a", pulling)) },
			"True/Available Stalled/ImagePullFailed", "pod a:",
		},
		"what is wrong with an old pod does not matter": {
			func(o *Observed) { rollout(o, oldCrashed, sickly("a", creating)) },
			"False/PodsStarting Reconciling/PodsStarting", "pod a:",
		},
		"only old pods are there": {
			func(o *Observed) { o.setPods(1, oldCrashed); o.Deployment.Status.UpdatedReplicas = 0 },
			"False/PodsStarting Reconciling/PodsStarting", "",
		},
		"an old pod is left": {
			func(o *Observed) { rollout(o, oldPod, podNamed("a")) },
			"True/Available Reconciling/Progressing", "replaced",
		},
		"the Deployment has not heard": {
			func(o *Observed) { o.Deployment.Generation++ },
			"True/Available Reconciling/Progressing", "the Deployment is rolling out",
		},
		"the Deployment was read before it was applied": {
			func(o *Observed) { o.Applied = o.Deployment.Generation + 1 },
			"True/Available Reconciling/Progressing", "the Deployment is rolling out",
		},
		"the Deployment is of another size": {
			func(o *Observed) { o.Server.Spec.Replicas = new(int32(2)) },
			"True/Available Reconciling/Progressing", "the Deployment is rolling out",
		},
		"the Deployment has not heard that the crash is corrected": {
			func(o *Observed) { o.setPods(1, sickly("a", crashed)); o.Deployment.Generation++ },
			"False/PodsStarting Reconciling/Progressing", "",
		},
		"the Deployment has not counted all": {
			func(o *Observed) {
				o.setPods(2, podNamed("a"), podNamed("b"))
				o.Deployment.Status.Replicas, o.Deployment.Status.UpdatedReplicas = 1, 1
			},
			"True/Available Reconciling/Progressing", "2 of 2 pods ready",
		},
		"what is refused does not reach the Deployment": {
			func(o *Observed) {
				o.setPods(1, sickly("a", crashed))
				o.Server.Spec.Replicas, o.Refusal = new(int32(2)), &Obstacle{mcpv1alpha1.ReasonInvalidSpec, "no"}
			},
			"False/ServerExits Stalled/InvalidSpec", "",
		},
		"replicas left out": {func(o *Observed) { o.Server.Spec.Replicas = nil }, "True/Available", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			test.change(o)
			for i := range o.Pods {
				if o.Results[o.Pods[i].UID].Outcome == "" && PodReady(&o.Pods[i]) {
					o.Results[o.Pods[i].UID] = answered("sha256:1")
				}
			}
			got := Compute(*o)
			c := find(t, got, mcpv1alpha1.ConditionAvailable)
			text := string(c.Status) + "/" + c.Reason
			last := got.Conditions[len(got.Conditions)-1]
			if last.Type == reconciling || last.Type == stalled {
				text += " " + last.Type + "/" + last.Reason
			}
			wantEqual(t, "Available", test.want, text)
			if test.words != "" {
				wantContains(t, last.Message, test.words)
			}
			wantReady := metav1.ConditionFalse
			if c.Status == metav1.ConditionTrue {
				wantReady = metav1.ConditionTrue
			}
			wantEqual(t, "Ready", wantReady, find(t, got, mcpv1alpha1.ConditionReady).Status)
		})
	}
}

func TestRecheck(t *testing.T) {
	ready, starting, late, restarted, crashed := podNamed("a"), podNamed("b"), podNamed("c"), podNamed("d"), podNamed("e")
	for _, pod := range []*corev1.Pod{&starting, &late, &restarted} {
		unready(pod)
	}
	starting.Status, starting.CreationTimestamp = corev1.PodStatus{}, ago(20*time.Second)
	adapterOf(&restarted).State = startedAgo(50 * time.Second)
	draining := starting
	draining.DeletionTimestamp = &now
	serverOf(&crashed).RestartCount, serverOf(&crashed).LastTerminationState = 2, terminated(1, "Error", "")
	serverOf(&crashed).LastTerminationState.Terminated.FinishedAt = ago(time.Minute)
	for name, test := range map[string]struct {
		pods         []corev1.Pod
		startTimeout time.Duration
		want         time.Duration
	}{
		"none":               {nil, time.Minute, 0},
		"ready":              {[]corev1.Pod{ready}, time.Minute, 0},
		"late already":       {[]corev1.Pod{late}, time.Minute, 0},
		"may start slowly":   {[]corev1.Pod{late}, 2 * time.Hour, time.Hour},
		"draining":           {[]corev1.Pod{draining}, time.Minute, 0},
		"starting":           {[]corev1.Pod{ready, starting, late}, time.Minute, 40 * time.Second},
		"the soonest counts": {[]corev1.Pod{starting, restarted}, time.Minute, 10 * time.Second},
		"a crash is told":    {[]corev1.Pod{crashed}, time.Minute, 4 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			wantEqual(t, "Recheck", test.want, Recheck(Observed{Pods: test.pods, StartTimeout: test.startTimeout, Now: now}))
		})
	}
}
