package controller

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/promise"
	"github.com/slipway-mcp/slipway/internal/workload"
	"github.com/slipway-mcp/slipway/test/hang"
)

// snapshot is everything in a namespace, with the versions of the objects.
func snapshot(t *testing.T, namespace string) map[string]string {
	t.Helper()
	all := map[string]string{}
	lists := ownedLists()
	lists["MCPServer"], lists["Event"], lists["Pod"] = &mcpv1alpha1.MCPServerList{}, &eventsv1.EventList{}, &corev1.PodList{}
	for kind, list := range lists {
		for _, object := range listed(t, namespace, list) {
			object.SetManagedFields(nil)
			content, err := json.MarshalIndent(object, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			all[kind+" "+object.GetName()] = string(content)
		}
	}
	return all
}

// Nothing changes, so nothing is written, with probes every second: at some time, and
// from then on until the manager has asked the adapters so many times more.
func TestAtRestNothingIsWritten(t *testing.T) {
	t.Parallel()
	operator, namespace := settledServers(t)
	const times = 20
	eventuallyRests(t, namespace, func() func() bool {
		enough := operator.asked(t) + times
		return func() bool { return operator.asked(t) >= enough }
	})
}

// The same for as long as it is promised.
func TestLongAtRestNothingIsWritten(t *testing.T) {
	t.Parallel()
	_, namespace := settledServers(t)
	eventuallyRests(t, namespace, func() func() bool {
		end := time.Now().Add(promise.Rest)
		return func() bool { return time.Now().After(end) }
	})
}

// eventuallyRests waits for a rest during which nothing in the namespace is written:
// begin begins one, and what it returns says whether that is over. The Events and what
// other controllers write of the beginning may come during the first ones. The manager
// has nothing to write to the MCPServers.
func eventuallyRests(t *testing.T, namespace string, begin func() (over func() bool)) {
	t.Helper()
	poll := time.NewTicker(500 * time.Millisecond)
	defer poll.Stop()
	for giveUp := time.Now().Add(hang.Guard); ; {
		before, over := snapshot(t, namespace), begin()
		for {
			<-poll.C
			isOver := over()
			after := snapshot(t, namespace)
			diff := cmp.Diff(before, after)
			if diff == "" && isOver {
				return
			}
			if diff == "" {
				continue
			}
			if time.Now().After(giveUp) || !maps.Equal(serversOf(before), serversOf(after)) {
				t.Fatalf("something is written while nothing changes (-before +after):\n%s", diff)
			}
			t.Logf("not at rest yet (-before +after):\n%s", diff)
			break
		}
	}
}

// serversOf are the MCPServers of a snapshot.
func serversOf(all map[string]string) map[string]string {
	all = maps.Clone(all)
	maps.DeleteFunc(all, func(name, _ string) bool { return !strings.HasPrefix(name, "MCPServer ") })
	return all
}

// settledServers are one that works, one with auth, one that does not work, and two that are suspended: from
// the start, and later.
func settledServers(t *testing.T) (operator *operator, namespace string) {
	t.Helper()
	g := NewWithT(t)
	namespace = newNamespace(t)
	operator = startOperator(t, namespace, nil)
	three := newServer(namespace, "three")
	three.Spec.Replicas = new(int32(3))
	broken := newServer(namespace, "broken")
	broken.Spec.Command = []string{hostileServer, "exit"}
	suspended := newServer(namespace, "suspended")
	suspended.Spec.Suspend = true
	stopped := newServer(namespace, "stopped") // after it has run, so it has a Deployment
	private := newServer(namespace, "private")
	private.Spec.Auth, private.Spec.Access = &mcpv1alpha1.Auth{Kubernetes: &mcpv1alpha1.KubernetesAuth{}}, accessFor("system:authenticated")
	create(t, three, broken, suspended, stopped, private)
	eventually(t, stopped, "Ready", "True Ready")
	change(t, stopped, func(s *mcpv1alpha1.MCPServer) { s.Spec.Suspend = true })
	eventually(t, three, "Ready", "True Ready", "Reconciling", "absent")
	instances := func(server *mcpv1alpha1.MCPServer) func() []mcpv1alpha1.Instance {
		return func() []mcpv1alpha1.Instance { return status(t, server).Instances }
	}
	verified := HaveField("Verification", mcpv1alpha1.InstanceVerified)
	g.Eventually(instances(three)).WithTimeout(hang.Guard).Should(HaveExactElements(verified, verified, verified))
	g.Eventually(func() int32 { return status(t, three).ReadyReplicas }).WithTimeout(hang.Guard).Should(BeEquivalentTo(3))
	g.Eventually(instances(broken)).WithTimeout(hang.Guard).Should(HaveExactElements(HaveField("Message", ContainSubstring("exit code 3"))))
	eventually(t, broken, "Ready", "False ServerExits", "Stalled", "True ServerExits", "Reconciling", "absent")
	eventually(t, private, "Accepted", "True Accepted", "Available", "True Available")
	g.Eventually(instances(private)).WithTimeout(hang.Guard).Should(HaveExactElements(verified))
	for _, server := range []*mcpv1alpha1.MCPServer{suspended, stopped} {
		eventually(t, server, "Available", "False Suspended", "Ready", "absent", "Reconciling", "absent")
	}
	return operator, namespace
}

// A new manager, whose builders really render something else, restarts nothing: not
// until the user changes something or asks for it.
func TestUpgradeRestartsNothing(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	old := startOperator(t, namespace, nil)
	waiting, rolling := newServer(namespace, "waiting"), newServer(namespace, "rolling")
	rolling.Spec.Rollout.OnOperatorUpgrade = mcpv1alpha1.RolloutRestart
	create(t, waiting, rolling)
	eventually(t, waiting, "Ready", "True Ready")
	eventually(t, rolling, "Ready", "True Ready")
	before := templateOf(t, waiting)
	pods := podNames(t, namespace)
	old.stop()

	startOperator(t, namespace, func(o *operatorOptions) {
		o.adapter = workload.Adapter{Image: "registry.example/slipway/adapter:next", PullPolicy: corev1.PullAlways, Version: "v0.0.1-test"}
	})
	g.Eventually(func() bool { return status(t, waiting).Template.Outdated }).WithTimeout(hang.Guard).Should(BeTrue())
	g.Eventually(func() string { return templateOf(t, rolling).Annotations[mcpv1alpha1.AnnotationAdapterVersion] }).WithTimeout(hang.Guard).Should(Equal("v0.0.1-test"))
	eventually(t, rolling, "Ready", "True Ready", "Reconciling", "absent")
	g.Eventually(func() *mcpv1alpha1.TemplateStatus { return status(t, rolling).Template }).WithTimeout(hang.Guard).
		Should(Equal(&mcpv1alpha1.TemplateStatus{AdapterVersion: "v0.0.1-test"}))
	g.Expect(status(t, waiting).Template).To(Equal(&mcpv1alpha1.TemplateStatus{AdapterVersion: "v0.0.0-test", Outdated: true}))
	g.Expect(templateOf(t, waiting)).To(Equal(before))
	left := podNames(t, namespace)
	restarted := slices.DeleteFunc([]string{pods[1]}, func(name string) bool { return slices.Contains(left, name) })
	if len(restarted) != promise.UpgradeRestarts {
		t.Errorf("the upgrade restarted %v; the promise is %d pods", restarted, promise.UpgradeRestarts)
	}

	change(t, waiting, func(s *mcpv1alpha1.MCPServer) {
		s.Annotations = map[string]string{mcpv1alpha1.AnnotationRefresh: "now"}
	})
	g.Eventually(func() string { return templateOf(t, waiting).Annotations[mcpv1alpha1.AnnotationAdapterVersion] }).WithTimeout(hang.Guard).Should(Equal("v0.0.1-test"))
	g.Eventually(func() bool { return status(t, waiting).Template.Outdated }).WithTimeout(hang.Guard).Should(BeFalse())
}

// A manager that leaves users to the cluster renders other pods, and restarts none.
func TestAssignedUsersRestartNothing(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	fixed := startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready")
	before, pods := templateOf(t, server), podNames(t, namespace)
	g.Expect(before.Spec.Containers[0].SecurityContext.RunAsUser).NotTo(BeNil())
	fixed.stop()

	startOperator(t, namespace, func(o *operatorOptions) { o.users = workload.UserAssigned })
	g.Eventually(func() bool { return status(t, server).Template.Outdated }).WithTimeout(hang.Guard).Should(BeTrue())
	g.Expect(templateOf(t, server)).To(Equal(before))
	g.Expect(podNames(t, namespace)).To(Equal(pods))

	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		s.Annotations = map[string]string{mcpv1alpha1.AnnotationRefresh: "now"}
	})
	g.Eventually(func() bool { return status(t, server).Template.Outdated }).WithTimeout(hang.Guard).Should(BeFalse())
	spec := templateOf(t, server).Spec
	for _, container := range append(spec.InitContainers, spec.Containers...) {
		g.Expect(container.SecurityContext.RunAsUser).To(BeNil(), container.Name)
		g.Expect(container.SecurityContext.RunAsGroup).To(BeNil(), container.Name)
	}
	g.Expect(spec.SecurityContext.FSGroup).To(BeNil())
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
}

// A server that breaks is known to be broken, and one that is mended works again. How soon
// is measured end to end, where nothing else runs.
func TestServerBreaksLater(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	// A server that stops to answer when a file is there.
	flag := t.TempDir() + "/broken"
	server.Spec.Command = []string{"sh", "-c", "[ -e " + flag + " ] && exec sleep 1000; exec " + echoServer}
	create(t, server)
	eventually(t, server, "Ready", "True Ready")
	breakFile(t, flag)
	killEcho(t, namespace)
	eventually(t, server, "Ready", "False ServerSilent")
	mendFile(t, flag)
	killEcho(t, namespace) // the one that hangs, and would for a minute
	eventually(t, server, "Ready", "True Ready")
}
