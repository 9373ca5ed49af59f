package sidecar

import (
	"fmt"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/test/hang"
)

// Many clients ask for large answers and do not read them. All of these together have one
// budget, and a client that reads gets its answer.
func TestManyClientsThatDoNotRead(t *testing.T) { manyDoNotRead(t, false) }

// The same where all have one process. The adapter does not read it until the clients that do
// not read have given way, one after the other.
func TestLongManyClientsOfOneProcessThatDoNotRead(t *testing.T) { manyDoNotRead(t, true) }

func manyDoNotRead(t *testing.T, shared bool) {
	t.Helper()
	const answer, hogs, calls = 8 * mib, 4, 4 // 128 MiB, of which the kernel takes some
	adapter, url := startAdapter(t, func(c *config.Config) {
		c.Shared = shared
		c.MemoryLimit, c.BodyBytes, c.LineBytes = 40*mib, mib, 9*mib
	})
	before := heap()
	reader := mustOpen(t, url)
	for range hogs {
		hog := mustOpen(t, url)
		for i := range calls {
			postUnread(t, hog, call(i, "big", fmt.Sprintf(`"n":%d`, answer)))
		}
	}
	gomega.NewWithT(t).Eventually(adapter.env.Memory.Waits).WithTimeout(hang.Guard).ShouldNot(gomega.BeZero())
	if used, limit := adapter.env.Memory.Used(), adapter.env.Memory.Limit(); used > limit {
		t.Errorf("%d KiB of %d are used", used>>10, limit>>10)
	}
	grown := heap() - before
	t.Logf("%d KiB are held, %d of the budget", grown>>10, adapter.env.Memory.Used()>>10)
	if most := int(adapter.env.Memory.Limit()) + 12*mib; grown > most { // a buffer of the heap besides
		t.Errorf("%d KiB are held, want at most %d", grown>>10, most>>10)
	}
	reader.wantAnswer(t, "count", `"text":"1"`)
}
