//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// stdioServer is an MCPServer that is not created yet, with the echo server unless
// another command is given. Its pods do not drain for long.
func stdioServer(ctx context.Context, namespace string, command ...string) *mcpv1alpha1.MCPServer {
	GinkgoHelper()
	if command == nil {
		command = []string{"/echo"}
	}
	return &mcpv1alpha1.MCPServer{
		ObjectMeta: metav1.ObjectMeta{Name: "server", Namespace: namespace},
		Spec: mcpv1alpha1.MCPServerSpec{
			Image: images.servers(ctx), Command: command,
			Transport: mcpv1alpha1.Transport{Type: mcpv1alpha1.TransportStdio},
			// Some clients leave sessions behind, for which a pod that goes away waits as long as it may.
			Session: mcpv1alpha1.Session{DrainTimeout: &metav1.Duration{Duration: 20 * time.Second}},
		},
	}
}

// start creates the server and waits until it is Ready.
func start(ctx context.Context, server *mcpv1alpha1.MCPServer) *mcpv1alpha1.MCPServer {
	GinkgoHelper()
	Expect(cluster.Create(ctx, server)).To(Succeed())
	return awaitReady(ctx, server)
}

// awaitReady waits until the server is Ready as it is specified now, and reachable.
func awaitReady(ctx context.Context, server *mcpv1alpha1.MCPServer) *mcpv1alpha1.MCPServer {
	GinkgoHelper()
	awaitCondition(ctx, server, mcpv1alpha1.ConditionReady, metav1.ConditionTrue, mcpv1alpha1.ReasonReady)
	// The Service of a Ready server works once every node has updated its rules.
	Eventually(func() error {
		conn, err := gate.dial(ctx, "tcp", hostOf(server))
		if err == nil {
			_ = conn.Close()
		}
		return err
	}).WithContext(ctx).Should(Succeed())
	return server
}

// awaitCondition waits until a condition of the server as it is specified now is so.
func awaitCondition(ctx context.Context, server *mcpv1alpha1.MCPServer, name string, status metav1.ConditionStatus, reason string) {
	GinkgoHelper()
	awaitStatus(ctx, server, patience, HaveField("Status.Conditions", ContainElement(And(
		HaveField("Type", name), HaveField("Status", status), HaveField("Reason", reason),
		HaveField("ObservedGeneration", server.Generation)))))
}

// awaitStatus waits until the server as it is stored matches.
func awaitStatus(ctx context.Context, server *mcpv1alpha1.MCPServer, within time.Duration, matcher gomegatypes.GomegaMatcher) {
	GinkgoHelper()
	Eventually(func() (*mcpv1alpha1.MCPServer, error) {
		return server, cluster.Get(ctx, client.ObjectKeyFromObject(server), server)
	}).WithContext(ctx).WithTimeout(within).Should(matcher,
		func() string { return "the status is\n" + summary(server) })
}

// change patches the spec.
func change(ctx context.Context, server *mcpv1alpha1.MCPServer, edit func(*mcpv1alpha1.MCPServerSpec)) {
	GinkgoHelper()
	before := reload(ctx, server).DeepCopy()
	edit(&server.Spec)
	Expect(cluster.Patch(ctx, server, client.MergeFrom(before))).To(Succeed())
}

// pods are the server's pods that are not going away, by name.
func pods(ctx context.Context, server *mcpv1alpha1.MCPServer) []corev1.Pod {
	GinkgoHelper()
	return slices.DeleteFunc(allPods(ctx, server), func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

func allPods(ctx context.Context, server *mcpv1alpha1.MCPServer) []corev1.Pod {
	GinkgoHelper()
	var list corev1.PodList
	Expect(cluster.List(ctx, &list, client.InNamespace(server.Namespace), client.MatchingLabels{mcpv1alpha1.LabelServer: server.Name})).To(Succeed())
	return list.Items
}

// awaitReplacement waits until another pod has taken the place of one that was deleted. The status of the server may
// still be that of before, so it is the pod that has to be ready.
func awaitReplacement(ctx context.Context, server *mcpv1alpha1.MCPServer, deleted *corev1.Pod) {
	GinkgoHelper()
	Eventually(func() []corev1.Pod { return pods(ctx, server) }).WithContext(ctx).WithTimeout(takesToEnd + patience).
		Should(And(HaveLen(1), HaveEach(And(
			HaveField("Name", Not(Equal(deleted.Name))),
			HaveField("Status.Conditions", ContainElement(And(HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue)))),
		))))
	awaitReady(ctx, server)
}

// onlyPod is the pod of a server that has one.
func onlyPod(ctx context.Context, server *mcpv1alpha1.MCPServer) *corev1.Pod {
	GinkgoHelper()
	list := pods(ctx, server)
	Expect(list).To(HaveLen(1))
	return &list[0]
}

// identities say which pods there are and how often their containers were restarted.
func identities(ctx context.Context, server *mcpv1alpha1.MCPServer) []string {
	GinkgoHelper()
	var list []string
	for _, pod := range allPods(ctx, server) {
		list = append(list, fmt.Sprintf("%s %s, restarts %v", pod.Name, pod.UID, restarts(&pod)))
	}
	return list
}

func hostOf(server *mcpv1alpha1.MCPServer) string {
	return server.Name + "." + server.Namespace + ".svc:80"
}

// toolNames are the tools in the status.
func toolNames(server *mcpv1alpha1.MCPServer) []string {
	var names []string
	if server.Status.Catalog == nil {
		return nil
	}
	for _, tool := range server.Status.Catalog.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// summary is what people look at first.
func summary(server *mcpv1alpha1.MCPServer) string {
	var text strings.Builder
	fmt.Fprintf(&text, "generation %d, observed %d, %d of %d replicas ready\n",
		server.Generation, server.Status.ObservedGeneration, server.Status.ReadyReplicas, server.Status.Replicas)
	for _, c := range server.Status.Conditions {
		fmt.Fprintf(&text, "%s=%s %s (of generation %d): %s\n", c.Type, c.Status, c.Reason, c.ObservedGeneration, c.Message)
	}
	for _, in := range server.Status.Instances {
		fmt.Fprintf(&text, "instance %s: %s, %s, %s\n", in.Pod, in.State, in.Verification, in.Message)
	}
	return text.String()
}
