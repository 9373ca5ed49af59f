package controller

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/test/hang"
)

// crowdedServer has a manager run a server whose pods linger when they are deleted, and have the sessions that are
// given, in the order of the pods' names.
func crowdedServer(t *testing.T, sessions ...int64) (operator *operator, server *mcpv1alpha1.MCPServer, c *crowd, pods []*corev1.Pod) {
	t.Helper()
	g := NewWithT(t)
	namespace, address := newNamespace(t), shared.network.Address()
	server = newServer(namespace, "echo")
	server.Spec.Image = "localhost:1/lingering-at-" + address + ":1"
	server.Spec.Replicas = new(int32(len(sessions)))
	c = newCrowd(t, client.ObjectKeyFromObject(server), address)
	operator = startOperator(t, namespace, nil)
	create(t, server)
	g.Eventually(func() int32 { return status(t, server).ReadyReplicas }).WithTimeout(hang.Guard).Should(BeEquivalentTo(len(sessions)))
	for _, pod := range listed(t, namespace, &corev1.PodList{}) {
		pods = append(pods, pod.(*corev1.Pod))
	}
	for i, pod := range pods {
		c.open(pod.UID, sessions[i])
	}
	g.Eventually(c.areTold).WithTimeout(hang.Guard).Should(BeTrue())
	return operator, server, c, pods
}

func instanceOf(t *testing.T, server *mcpv1alpha1.MCPServer, pod *corev1.Pod) func() mcpv1alpha1.InstanceState {
	t.Helper()
	return func() mcpv1alpha1.InstanceState {
		for _, instance := range status(t, server).Instances {
			if instance.Pod == pod.Name {
				return instance.State
			}
		}
		return ""
	}
}

// A deleted pod stays in the status and in the lists, with its sessions, until it is gone. The manager tells the pod how
// much time it has, if that is less than the pod's template says.
func TestDeletedPodIsShownUntilItIsGone(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	operator, server, c, pods := crowdedServer(t, 3, 1)
	going, staying := pods[0], pods[1]
	g.Expect(shared.client.Delete(t.Context(), going, client.GracePeriodSeconds(18))).To(Succeed())

	entry := func(of *corev1.Pod) func() adapterapi.PeerPod {
		return func() adapterapi.PeerPod { return c.entry(of.UID, going.UID) }
	}
	for _, of := range pods {
		g.Eventually(entry(of)).WithTimeout(hang.Guard).Should(And(
			HaveField("Terminating", true), HaveField("Ready", false), HaveField("Closing", false), HaveField("Sessions", BeEquivalentTo(3)),
			HaveField("Address", going.Status.PodIP+":16272")))
	}
	g.Expect(c.entry(staying.UID, staying.UID)).To(And(HaveField("Ready", true), HaveField("Newest", true), HaveField("Terminating", false)))
	g.Eventually(instanceOf(t, server, going)).WithTimeout(hang.Guard).Should(Equal(mcpv1alpha1.InstanceDraining))
	g.Eventually(func() *mcpv1alpha1.Draining { return status(t, server).Draining }).WithTimeout(hang.Guard).
		Should(Equal(&mcpv1alpha1.Draining{Replicas: 1, Sessions: 3}))
	g.Eventually(func() int32 { return status(t, server).ReadyReplicas }).WithTimeout(hang.Guard).Should(BeEquivalentTo(2))
	g.Expect(operator.gauge(t, "slipway_sessions")).To(BeEquivalentTo(4), "its sessions do not count any more")
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	g.Expect(describe(status(t, server))).To(ContainSubstring("; 1 pod drains, with 3 sessions"))

	shared.kubelet.letGo(server.Namespace)
	g.Eventually(entry(staying)).WithTimeout(hang.Guard).Should(Equal(adapterapi.PeerPod{}))
	g.Eventually(func() *mcpv1alpha1.Draining { return status(t, server).Draining }).WithTimeout(hang.Guard).Should(BeNil())
	g.Expect(instanceOf(t, server, going)()).To(BeEmpty())
}

// A pod that drains and never answers a restarted manager counts, and its sessions do not. They would count for as long
// as its node is lost.
func TestSessionsOfAPodThatAnswersNoMore(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	operator, server, c, pods := crowdedServer(t, 3, 1)
	g.Expect(shared.client.Delete(t.Context(), pods[0])).To(Succeed())
	draining := func() *mcpv1alpha1.Draining { return status(t, server).Draining }
	g.Eventually(draining).WithTimeout(hang.Guard).Should(Equal(&mcpv1alpha1.Draining{Replicas: 1, Sessions: 3}))
	operator.stop()
	c.silence(pods[0].UID)
	startOperator(t, server.Namespace, nil)
	g.Eventually(draining).WithTimeout(hang.Guard).Should(Equal(&mcpv1alpha1.Draining{Replicas: 1}))
	g.Eventually(func() *int32 { return status(t, server).Sessions }).WithTimeout(hang.Guard).Should(HaveValue(BeEquivalentTo(1)))
}

// If a pod is deleted with less time than its template gives it, the manager tells the pod, even if it is the only one.
func TestOnlyPodIsToldHowLongItHas(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace, address := newNamespace(t), shared.network.Address()
	server := newServer(namespace, "echo")
	server.Spec.Image, server.Spec.Session.DrainTimeout = "localhost:1/lingering-at-"+address+":1", nil // a minute
	c := newCrowd(t, client.ObjectKeyFromObject(server), address)
	startOperator(t, namespace, nil)
	create(t, server)
	g.Eventually(func() int32 { return status(t, server).ReadyReplicas }).WithTimeout(hang.Guard).Should(BeEquivalentTo(1))
	pod := listed(t, namespace, &corev1.PodList{})[0].(*corev1.Pod)
	g.Expect(shared.client.Delete(t.Context(), pod, client.GracePeriodSeconds(20))).To(Succeed())
	g.Eventually(func() int64 { return c.entry(pod.UID, pod.UID).DrainSeconds }).WithTimeout(hang.Guard).Should(BeEquivalentTo(7))
}

// The only pod of a server is deleted by force. The manager tells the pod that replaces it that the old pod is gone, although
// the two never existed at the same time.
func TestOnlyPodIsToldWhatIsGone(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	_, server, c, pods := crowdedServer(t, 1)
	g.Expect(c.entry(pods[0].UID, pods[0].UID)).To(Equal(adapterapi.PeerPod{}), "a pod without others has no list")
	g.Expect(shared.client.Delete(t.Context(), pods[0], client.GracePeriodSeconds(0))).To(Succeed())
	next := func() (uid types.UID) {
		for _, object := range listed(t, server.Namespace, &corev1.PodList{}) {
			if object.GetUID() != pods[0].UID {
				uid = object.GetUID()
			}
		}
		return uid
	}
	g.Eventually(next).WithTimeout(hang.Guard).ShouldNot(BeEmpty())
	g.Eventually(c.gone).WithArguments(next()).WithTimeout(hang.Guard).Should(Equal([]string{string(pods[0].UID)}))
}

// The pods of a server that is stopped or deleted need not wait for their sessions. The manager tells them so, even after
// the MCPServer itself is gone, or before Kubernetes deletes it with its namespace.
func TestPodsAreToldThatAllEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *mcpv1alpha1.MCPServer){
		"suspended": func(t *testing.T, server *mcpv1alpha1.MCPServer) {
			t.Helper()
			change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Suspend = true })
		},
		"deleted": func(t *testing.T, server *mcpv1alpha1.MCPServer) {
			t.Helper()
			NewWithT(t).Expect(shared.client.Delete(t.Context(), server)).To(Succeed())
		},
		"deleted in the foreground": func(t *testing.T, server *mcpv1alpha1.MCPServer) {
			t.Helper()
			NewWithT(t).Expect(shared.client.Delete(t.Context(), server, client.PropagationPolicy("Foreground"))).To(Succeed())
		},
		"deleted with its namespace": func(t *testing.T, server *mcpv1alpha1.MCPServer) {
			t.Helper()
			NewWithT(t).Expect(shared.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: objectMeta("", server.Namespace)})).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			operator, server, c, pods := crowdedServer(t, 2, 0)
			end(t, server)
			for _, pod := range pods {
				g.Eventually(func() adapterapi.PeerPod { return c.entry(pod.UID, pod.UID) }).WithTimeout(hang.Guard).
					Should(And(HaveField("Terminating", true), HaveField("Closing", true)))
			}
			if name == "suspended" {
				eventually(t, server, "Available", "False Suspended", "Ready", "absent", "Reconciling", "absent")
				g.Eventually(func() *mcpv1alpha1.Draining { return status(t, server).Draining }).WithTimeout(hang.Guard).
					Should(Equal(&mcpv1alpha1.Draining{Replicas: 2, Sessions: 2}))
			}
			shared.kubelet.letGo(server.Namespace)
			g.Eventually(operator.gauge).WithArguments(t, "slipway_probe_instances").WithTimeout(hang.Guard).Should(BeZero(), "the operator asks pods that are gone")
			if name != "suspended" {
				g.Eventually(func() bool {
					return apierrors.IsNotFound(shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), server))
				}).WithTimeout(hang.Guard).Should(BeTrue())
			}
		})
	}
}

// Pods that their user has outlive the MCPServer are not told that they end.
func TestOrphanedPodsGoOn(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	operator, server, c, pods := crowdedServer(t, 2, 0)
	g.Expect(shared.client.Delete(t.Context(), server, client.PropagationPolicy("Orphan"))).To(Succeed())
	g.Eventually(operator.gauge).WithArguments(t, "slipway_probe_instances").WithTimeout(hang.Guard).Should(BeZero())
	for _, pod := range pods {
		g.Expect(c.entry(pod.UID, pod.UID)).To(And(HaveField("Terminating", false), HaveField("Closing", false)))
	}
}

// A smaller number of pods costs the fewest sessions: no new ones begin at the pods that go, and then those go that have
// the fewest. Until then no pod is written to.
func TestScaleDownDeletesTheEmptiest(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	_, server, c, pods := crowdedServer(t, 4, 0, 7, 1, 2)
	costs := func() map[types.UID]string {
		all := map[types.UID]string{}
		for _, pod := range listed(t, server.Namespace, &corev1.PodList{}) {
			if cost, ok := pod.GetAnnotations()[corev1.PodDeletionCost]; ok {
				all[pod.GetUID()] = cost
			}
		}
		return all
	}
	deleted := func() (names []string) {
		for _, pod := range listed(t, server.Namespace, &corev1.PodList{}) {
			if !pod.GetDeletionTimestamp().IsZero() {
				names = append(names, pod.GetName())
			}
		}
		return names
	}
	g.Expect(costs()).To(BeEmpty())
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas = new(int32(3)) })
	victims := []string{string(pods[1].UID), string(pods[3].UID)}
	slices.Sort(victims)
	g.Eventually(c.everCordoned).WithArguments(pods[0].UID).WithTimeout(hang.Guard).Should(Equal(victims))
	g.Eventually(deleted).WithTimeout(hang.Guard).Should(HaveExactElements(pods[1].Name, pods[3].Name))
	g.Expect(costs()).To(Equal(map[types.UID]string{
		pods[0].UID: "4", pods[1].UID: "-1000", pods[2].UID: "7", pods[3].UID: "-999", pods[4].UID: "2",
	}))
	g.Eventually(c.cordoned).WithArguments(pods[0].UID).WithTimeout(hang.Guard).Should(BeEmpty())
	g.Eventually(func() *mcpv1alpha1.Draining { return status(t, server).Draining }).WithTimeout(hang.Guard).
		Should(Equal(&mcpv1alpha1.Draining{Replicas: 2, Sessions: 1}))
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	shared.kubelet.letGo(server.Namespace)
	g.Eventually(podNames).WithArguments(t, server.Namespace).WithTimeout(hang.Guard).Should(HaveLen(3))
}

// A number that is raised again before a pod is deleted costs nothing.
func TestScaleDownIsTakenBack(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	_, server, c, pods := crowdedServer(t, 1, 1, 1)
	deployment := &appsv1.Deployment{ObjectMeta: objectMeta(server.Namespace, server.Name)}
	g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
	before := deployment.Generation
	const tries = 3 // the machine may be too slow
	for range tries {
		c.forgetCordons()
		change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas = new(int32(2)) })
		g.Eventually(c.everCordoned).WithArguments(pods[0].UID).WithTimeout(hang.Guard).ShouldNot(BeEmpty())
		change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas = new(int32(3)) })
		g.Eventually(c.cordoned).WithArguments(pods[0].UID).WithTimeout(hang.Guard).Should(BeEmpty())
		g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		if deployment.Generation == before {
			return
		}
		before = deployment.Generation
	}
	t.Error("the Deployment was scaled down each time")
}

// The pods of a rollout that replaces all of them at once need not wait for their sessions either. Before any other
// rollout, pods are ranked.
func TestRolloutsOfCrowdedServers(t *testing.T) {
	t.Parallel()
	for _, strategy := range []mcpv1alpha1.RolloutStrategy{mcpv1alpha1.RolloutRecreate, mcpv1alpha1.RolloutRollingUpdate} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			_, server, c, pods := crowdedServer(t, 2, 1)
			change(t, server, func(s *mcpv1alpha1.MCPServer) {
				s.Spec.Rollout.Strategy, s.Spec.Args = strategy, []string{"--new"}
			})
			isRecreated := strategy == mcpv1alpha1.RolloutRecreate
			for _, pod := range pods {
				g.Eventually(func() adapterapi.PeerPod { return c.entry(pod.UID, pod.UID) }).WithTimeout(hang.Guard).
					Should(And(HaveField("Terminating", true), HaveField("Newest", false), HaveField("Closing", isRecreated)))
			}
			var costs []string
			for _, pod := range pods {
				current := &corev1.Pod{}
				g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(pod), current)).To(Succeed())
				costs = append(costs, current.Annotations[corev1.PodDeletionCost])
			}
			want := "2 1"
			if isRecreated {
				want = " "
			}
			g.Expect(strings.Join(costs, " ")).To(Equal(want))
			shared.kubelet.letGo(server.Namespace)
			eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
		})
	}
}
