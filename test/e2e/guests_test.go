//go:build e2e

package e2e

import (
	"context"
	"net"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// guest is a client in a pod of its own, with a session in one of a server's pods.
type guest struct {
	*wayIn
	session *caller
}

// mostGuests is how many clients come at most. Of two pods, one in 32,000 runs leaves one without a guest by chance.
const mostGuests = 16

// guestsOn are clients on a node, one for each pod of the server, by the pod's name. The Service
// chooses a pod for each connection, so clients come until each pod has one.
func guestsOn(ctx context.Context, node string, server *mcpv1alpha1.MCPServer) map[string]guest {
	GinkgoHelper()
	list := pods(ctx, server)
	guests := map[string]guest{}
	for range mostGuests {
		if len(guests) == len(list) {
			return guests
		}
		way := clientPod(ctx, node, server.Namespace)
		session, err := way.tryOpenAs(ctx, server, "2025-11-25")
		Expect(err).NotTo(HaveOccurred(), "from node %s", node)
		host := holder(ctx, server, list, session)
		Expect(way.statusOf(ctx, server, session)).To(Equal(http.StatusOK), "on the next connection of the same client")
		guests[host] = guest{way, session}
	}
	Fail("the Service leads clients on node " + node + " to some of its pods only")
	return nil
}

// clientPod is a pod on a node through which tests connect with the pod's address.
func clientPod(ctx context.Context, node, namespace string) *wayIn {
	GinkgoHelper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "client-", Namespace: namespace}, Spec: gatePod(gate.image, node)}
	Expect(cluster.Create(ctx, pod)).To(Succeed())
	Eventually(func() []corev1.PodCondition { return reload(ctx, pod).Status.Conditions }).WithContext(ctx).
		Should(ContainElement(And(HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))))
	return &wayIn{proxy: net.JoinHostPort(pod.Status.PodIP, "8080"), node: node, through: gate}
}

// holder is the name of the pod that has a session.
func holder(ctx context.Context, server *mcpv1alpha1.MCPServer, list []corev1.Pod, session *caller) string {
	GinkgoHelper()
	var holders []string
	for i := range list {
		if owns(ctx, server, &list[i], session) {
			holders = append(holders, list[i].Name)
		}
	}
	Expect(holders).To(HaveLen(1))
	return holders[0]
}

// statusOf is the answer to a ping in a session, on a new connection through the Service.
func (g *wayIn) statusOf(ctx context.Context, server *mcpv1alpha1.MCPServer, session *caller) (int, error) {
	transport := &http.Transport{DialContext: g.dial, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(pingIn(ctx, server, session))
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}
