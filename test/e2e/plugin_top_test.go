//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("kubectl mcp top", Label("sessions"), func() {
	It("shows the calls of a server, live from its adapter", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		server := start(ctx, stdioServer(ctx, namespace))
		url := connectLocally(ctx, server)
		session, err := mcp.NewClient(&mcp.Implementation{Name: "busy", Version: "1"}, nil).
			Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true}, nil)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = session.Close() })
		calling, stop := context.WithCancel(ctx)
		var done sync.WaitGroup
		done.Go(func() {
			for calling.Err() == nil {
				_, _ = session.CallTool(calling, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hello"}})
			}
		})
		DeferCleanup(done.Wait)
		DeferCleanup(stop)

		found := kubectlMCP(ctx, namespace, "top", server.Name, "-o", "json")
		Expect(found.Code).To(Equal(0), found.ErrOut)
		var printed struct {
			Items []struct {
				Pods, Answered                                   int
				CallsPerSecond, ErrorRatio, P99Seconds, Sessions float64
			}
		}
		Expect(json.Unmarshal([]byte(found.Out), &printed)).To(Succeed())
		Expect(printed.Items).To(HaveLen(1))
		Expect(printed.Items[0]).To(And(
			HaveField("Pods", 1), HaveField("Answered", 1), HaveField("ErrorRatio", 0.0),
			HaveField("CallsPerSecond", BeNumerically(">", 0)), HaveField("P99Seconds", BeNumerically(">", 0)), HaveField("Sessions", BeNumerically(">=", 1))))
		Expect(kubectlMCP(ctx, namespace, "top")).To(And(HaveField("Code", 0), HaveField("Out", ContainSubstring(server.Name)), HaveField("ErrOut", BeEmpty())))
	})
})
