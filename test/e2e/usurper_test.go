//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

var _ = Describe("A server that takes the adapter's place", Label("disruptive"), func() {
	// Containers of a pod share their ports. The adapter starts first, so a process of the
	// server gets the admin port when the adapter crashes, and keeps it.
	It("is not Ready, learns nothing of the key, and recovers when it is mended", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx), "/hostile", "usurp", "/everything-server", "-http", ":3000")
		server.Spec.Transport = mcpv1alpha1.Transport{
			Type: mcpv1alpha1.TransportStreamableHTTP, StreamableHTTP: &mcpv1alpha1.StreamableHTTPTransport{Port: 3000, Path: "/mcp"},
		}
		server.Spec.Session.DrainTimeout = &metav1.Duration{Duration: time.Second} // there is no adapter to wait for
		start(ctx, server)
		offered := toolNames(server)
		Expect(offered).NotTo(BeEmpty())
		pod := onlyPod(ctx, server)
		cluster.kill(ctx, pod, adapterContainer)

		By("naming the port")
		usurped := And(
			HaveField("Type", mcpv1alpha1.ConditionReady), HaveField("Status", metav1.ConditionFalse),
			HaveField("Reason", mcpv1alpha1.ReasonPodsNotReady),
			HaveField("Message", ContainSubstring("the adapter cannot listen on port 16271")))
		awaitStatus(ctx, server, 2*patience, HaveField("Status.Conditions", ContainElement(usurped)))

		By("asking the usurper, and believing nothing that it says")
		secret := key(ctx, server.Namespace, server.Name)
		Expect(secret).NotTo(Equal(adapterapi.Key{}))
		Eventually(func() string { return told(ctx, pod) }).WithContext(ctx).WithTimeout(2 * patience).WithPolling(time.Second).
			Should(ContainSubstring(adapterapi.HeaderProof))
		// The kubelet restarts the killed adapter once, and again after that start fails.
		Eventually(func() int32 { return restarts(reload(ctx, pod))[adapterContainer] }).WithContext(ctx).WithTimeout(2 * patience).
			Should(BeNumerically(">=", 2))
		awaitStatus(ctx, server, 2*patience, HaveField("Status.Conditions", ContainElement(usurped)))
		Expect(toolNames(server)).To(Equal(offered), "the usurper, which offers nothing, was believed")
		sent := told(ctx, pod)
		for form, text := range formsOf(secret) {
			Expect(sent).NotTo(ContainSubstring(text), "the usurper has the key, "+form)
		}

		By("serving again without the usurper")
		change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) { spec.Command = server.Spec.Command[2:] })
		awaitReady(ctx, server)
		Expect(toolNames(server)).To(Equal(offered))
	})
})

// told is everything that the usurper of a pod was sent.
func told(ctx context.Context, pod *corev1.Pod) string {
	GinkgoHelper()
	var all bytes.Buffer
	for line := range strings.Lines(kubectl(ctx, pod.Namespace, "logs", pod.Name, "--container="+serverContainer)) {
		if code, ok := strings.CutPrefix(strings.TrimSpace(line), "usurped: "); ok {
			text, err := hex.DecodeString(code)
			Expect(err).NotTo(HaveOccurred())
			all.Write(text)
		}
	}
	return all.String()
}

// formsOf are beginnings of a key in the forms that it could travel in: short enough not to
// depend on how they end, and long enough to be no accident.
func formsOf(key adapterapi.Key) map[string]string {
	GinkgoHelper()
	raw, err := hex.DecodeString(key.Encode())
	Expect(err).NotTo(HaveOccurred())
	return map[string]string{
		"as it is":            string(raw[:8]),
		"in hexadecimal":      key.Encode()[:16],
		"in upper case":       strings.ToUpper(key.Encode()[:16]),
		"in Base64":           base64.StdEncoding.EncodeToString(raw)[:16],
		"in Base64 for URLs":  base64.URLEncoding.EncodeToString(raw)[:16],
		"hexadecimal, Base64": base64.StdEncoding.EncodeToString([]byte(key.Encode()))[:16],
	}
}
