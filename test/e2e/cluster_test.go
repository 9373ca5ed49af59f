//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// repository is the root of the checkout, seen from where tests run.
var repository = filepath.Join("..", "..")

// takesToEnd is for namespaces: their pods may drain for a minute.
const takesToEnd = 2 * time.Minute

// ownLabel is on every namespace that the suite makes.
const ownLabel = "slipway-e2e"

// connection is the cluster under test.
type connection struct {
	client.WithWatch
	kubernetes.Interface
	tool string // the program of test/cluster
}

func connectToCluster(ctx context.Context) *connection {
	GinkgoHelper()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	Expect(err).NotTo(HaveOccurred())
	config.QPS = -1 // The suite waits by looking; the API server protects itself.
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(mcpv1alpha1.AddToScheme(scheme)).To(Succeed())
	c := &connection{tool: filepath.Join(GinkgoT().TempDir(), "cluster")}
	c.WithWatch, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	c.Interface, err = kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	run(ctx, "go", "build", "-o", c.tool, "./test/cluster")
	c.deleteNamespaces(ctx) // what an earlier run left that was interrupted
	return c
}

// run runs a program in the root of the checkout and returns what it prints on
// standard output.
func run(ctx context.Context, name string, args ...string) string {
	GinkgoHelper()
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = repository
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	Expect(err).NotTo(HaveOccurred(), "%s %s: %s%s", name, strings.Join(args, " "), &stderr, &stdout)
	return strings.TrimSpace(stdout.String())
}

// kubectl does what a user would type.
func kubectl(ctx context.Context, namespace string, args ...string) string {
	GinkgoHelper()
	return run(ctx, "kubectl", append([]string{"--namespace", namespace}, args...)...)
}

// newNamespace makes a namespace for one spec, which goes when the spec is over.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-",
		Labels:       map[string]string{ownLabel: "", "pod-security.kubernetes.io/enforce": "restricted"},
	}}
	Expect(cluster.Create(ctx, namespace)).To(Succeed())
	ownNamespaces = append(ownNamespaces, namespace.Name)
	DeferCleanup(func(ctx context.Context) {
		// A pod that still runs would slow the next spec down. One that is told to end serves on
		// for its settle time, at almost no cost, and the end of the suite waits for it.
		Expect(cluster.DeleteAllOf(ctx, &mcpv1alpha1.MCPServer{}, client.InNamespace(namespace.Name))).To(Succeed())
		Eventually(func() []corev1.Pod {
			var pods corev1.PodList
			Expect(cluster.List(ctx, &pods, client.InNamespace(namespace.Name), client.HasLabels{mcpv1alpha1.LabelServer})).To(Succeed())
			return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
		}).WithContext(ctx).WithTimeout(takesToEnd).Should(BeEmpty(), func() string {
			dump(namespace.Name)
			return "pods of deleted MCPServers are not told to end"
		})
		Expect(cluster.Delete(ctx, namespace)).To(Succeed())
	})
	return namespace.Name
}

// deleteNamespaces deletes what the suite made and waits until it is gone.
func (c *connection) deleteNamespaces(ctx context.Context) {
	GinkgoHelper()
	list := func() []corev1.Namespace {
		var namespaces corev1.NamespaceList
		Expect(c.List(ctx, &namespaces, client.HasLabels{ownLabel})).To(Succeed())
		return namespaces.Items
	}
	for _, namespace := range list() {
		Expect(client.IgnoreNotFound(c.Delete(ctx, &namespace))).To(Succeed())
	}
	Eventually(list).WithContext(ctx).WithTimeout(takesToEnd).Should(BeEmpty())
}

// kill ends the first process of a container from outside, as a crash would.
func (c *connection) kill(ctx context.Context, pod *corev1.Pod, container string) {
	GinkgoHelper()
	for _, status := range containerStatuses(pod) {
		if status.Name == container {
			run(ctx, c.tool, "kill", status.ContainerID)
			return
		}
	}
	Fail("pod " + pod.Name + " has no container " + container)
}

// withoutAPIServer runs do while the API server answers no request. The API server is back before a failure is reported.
func (c *connection) withoutAPIServer(ctx context.Context, do func()) {
	GinkgoHelper()
	run(ctx, c.tool, "freeze")
	begin := time.Now()
	defer func() {
		ctx := context.WithoutCancel(ctx)
		run(ctx, c.tool, "thaw")
		AddReportEntry("the API server was away for", time.Since(begin).Round(time.Millisecond).String())
		Eventually(func() error { return c.List(ctx, &corev1.NodeList{}) }).WithContext(ctx).Should(Succeed())
	}()
	// The kernel stops a process on its own time: on a busy machine it still answers for a moment.
	Eventually(func() error {
		brief, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return c.List(brief, &corev1.NodeList{})
	}).WithContext(ctx).WithTimeout(5*time.Second).Should(MatchError(context.DeadlineExceeded), "the API server is still there: nothing is proven")
	do()
}

// schedulableNodes are those that take any pod, the control plane first.
func schedulableNodes(ctx context.Context) []corev1.Node {
	GinkgoHelper()
	var nodes corev1.NodeList
	Expect(cluster.List(ctx, &nodes)).To(Succeed())
	list := slices.DeleteFunc(nodes.Items, func(node corev1.Node) bool {
		return node.Spec.Unschedulable || slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Effect != corev1.TaintEffectPreferNoSchedule
		})
	})
	Expect(list).NotTo(BeEmpty(), "no node takes pods")
	other := func(node corev1.Node) int {
		if _, controls := node.Labels["node-role.kubernetes.io/control-plane"]; controls {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b corev1.Node) int { return other(a) - other(b) })
	return list
}

func containerStatuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return append(append([]corev1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...)
}

// restarts are the numbers of restarts by container.
func restarts(pod *corev1.Pod) map[string]int32 {
	counts := map[string]int32{}
	for _, status := range containerStatuses(pod) {
		counts[status.Name] = status.RestartCount
	}
	return counts
}

// reload reads the object again.
func reload[T client.Object](ctx context.Context, object T) T {
	GinkgoHelper()
	Expect(cluster.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
	return object
}

// copyOf is a pod like another, which belongs to no controller and no Service.
func copyOf(pod *corev1.Pod) *corev1.Pod {
	spec := pod.Spec.DeepCopy()
	spec.NodeName = "" // for the scheduler to set, as it does for the other
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: "copy-"}, Spec: *spec}
}

// restricted completes a pod so that Pod Security "restricted" admits it.
func restricted(spec corev1.PodSpec) corev1.PodSpec {
	spec.AutomountServiceAccountToken = new(false)
	spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(1000)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	for i := range spec.Containers {
		spec.Containers[i].SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	}
	return spec
}
