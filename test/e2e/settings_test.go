//go:build e2e

package e2e

import (
	"context"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/promise"
)

var _ = Describe("Settings", Label("sessions"), func() {
	It("change in running pods in the promised time", func(ctx SpecContext) {
		const host, page = "mcp.example.com", "https://chat.example.com"
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		session := open(ctx, server)
		Expect(session.call(ctx, "count", nil)).To(Equal("1"))
		before := identities(ctx, server)
		Expect(answerTo(ctx, server, "", "")).NotTo(Equal(http.StatusForbidden))
		Expect(answerTo(ctx, server, host, "")).To(Equal(http.StatusForbidden))
		Expect(answerTo(ctx, server, "", page)).To(Equal(http.StatusForbidden))

		By("allowing a host and an origin, and logging more")
		change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) {
			spec.Adapter.AllowedHosts, spec.Adapter.AllowedOrigins = []mcpv1alpha1.Host{host}, []mcpv1alpha1.Origin{page}
			spec.Adapter.Verbosity = new(int32(1))
		})
		expectSoon(ctx, "allowed", func() int { return answerTo(ctx, server, host, page) }, Not(Equal(http.StatusForbidden)))
		Expect(open(ctx, server).Close()).To(Succeed())
		Eventually(endsInLog).WithContext(ctx).WithArguments(server).Should(Equal(1), "only what ended since is logged")

		By("taking it all back")
		change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) {
			spec.Adapter.AllowedHosts, spec.Adapter.AllowedOrigins, spec.Adapter.Verbosity = nil, nil, nil
		})
		expectSoon(ctx, "refused", func() int { return answerTo(ctx, server, host, "") }, Equal(http.StatusForbidden))
		Expect(answerTo(ctx, server, "", page)).To(Equal(http.StatusForbidden))
		Expect(open(ctx, server).Close()).To(Succeed()) // which is not logged, as the next one proves
		change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) {
			spec.Adapter.AllowedHosts, spec.Adapter.Verbosity = []mcpv1alpha1.Host{host}, new(int32(1))
		})
		expectSoon(ctx, "allowed again", func() int { return answerTo(ctx, server, host, "") }, Not(Equal(http.StatusForbidden)))
		Expect(open(ctx, server).Close()).To(Succeed())
		Eventually(endsInLog).WithContext(ctx).WithArguments(server).Should(Equal(2))

		Expect(session.call(ctx, "count", nil)).To(Equal("2"), "the session that was open goes on")
		Expect(identities(ctx, server)).To(Equal(before), "no pod was replaced, and no container restarted")
	})
})

// expectSoon expects something of running pods in the promised time after the change
// that was made just now.
func expectSoon(ctx context.Context, what string, status func() int, matcher OmegaMatcher) {
	GinkgoHelper()
	changed := time.Now()
	Eventually(status).WithContext(ctx).WithTimeout(promise.Settings).WithPolling(20 * time.Millisecond).Should(matcher)
	AddReportEntry(what+" after", time.Since(changed).String())
}

// answerTo is the status of the answer to a message that is none, under a name and of a
// page; without these, it comes as any client's.
func answerTo(ctx context.Context, server *mcpv1alpha1.MCPServer, host, page string) int {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.Status.Address.URL, strings.NewReader("{}"))
	Expect(err).NotTo(HaveOccurred())
	if host != "" {
		request.Host = host
	}
	if page != "" {
		request.Header.Set("Origin", page)
	}
	_, status, err := get(request)
	Expect(err).NotTo(HaveOccurred())
	return status
}

// endsInLog is how many sessions have ended, as the adapter's log says if it has more.
func endsInLog(ctx context.Context, server *mcpv1alpha1.MCPServer) int {
	GinkgoHelper()
	log := kubectl(ctx, server.Namespace, "logs", onlyPod(ctx, server).Name, "--container="+adapterContainer)
	return strings.Count(log, `"Session ended"`)
}
