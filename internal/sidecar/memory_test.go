package sidecar

import (
	"runtime"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
)

// The adapter collects the memory of a burst soon after it, without a request.
// Parallel tests would keep the process busy.
func TestMemoryIsGivenBackAtRest(t *testing.T) {
	startAdapter(t, nil)
	collected := make(chan struct{})
	func() {
		waste := make([][]byte, 64)
		for i := range waste {
			waste[i] = make([]byte, 1<<20/16)
		}
		runtime.AddCleanup(&waste[63][0], func(struct{}) { close(collected) }, struct{}{})
	}()
	gomega.NewWithT(t).Eventually(collected).WithTimeout(hang.Guard).Should(gomega.BeClosed())
}
