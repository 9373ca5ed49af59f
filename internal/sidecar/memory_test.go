package sidecar

import (
	"runtime"
	"strings"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
)

// Memory that a burst has left behind is collected soon after it, without anybody asking.
// Parallel tests would not let the process come to rest.
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

// Messages that have no room are refused at the start, with what to set. The API server
// refuses the same ones.
func TestCheckMemory(t *testing.T) {
	for name, test := range map[string]struct {
		memory, body int64
		line         int
		fields       bool
		want         []string
	}{
		"defaults, in a pod":  {256 * mib, 32 * mib, 64 * mib, true, nil},
		"no limit":            {0, 1 << 32, 1 << 32, true, nil},
		"body that just fits": {256 * mib, 64 * mib, 1 * mib, false, nil},
		"body": {256*mib - 1, 64 * mib, 1 * mib, false, []string{
			"limit-body-bytes is 67108864, and with memory-limit 268435455 all messages together may have 134217727 bytes: raise memory-limit to 268435456, or lower limit-body-bytes",
		}},
		"line": {256*mib - 1, 1 * mib, 64 * mib, false, []string{
			"limit-line-bytes is 67108864, and with memory-limit 268435455 all messages together may have 134217727 bytes: raise memory-limit to 268435456, or lower limit-line-bytes",
		}},
		"both, in a pod": {64 * mib, 32 * mib, 64 * mib, true, []string{
			"spec.adapter.limits.bodyBytes is 33554432, and with spec.adapter.resources.limits.memory 67108864 all messages together may have 33554432 bytes: raise spec.adapter.resources.limits.memory to 134217728, or lower spec.adapter.limits.bodyBytes",
			"spec.adapter.limits.lineBytes is 67108864, and with spec.adapter.resources.limits.memory 67108864 all messages together may have 33554432 bytes: raise spec.adapter.resources.limits.memory to 268435456, or lower spec.adapter.limits.lineBytes",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			config := Defaults()
			config.MemoryLimit, config.BodyBytes, config.LineBytes, config.Names.Fields = test.memory, test.body, test.line, test.fields
			got := ""
			if err := config.Validate(); err != nil {
				got = err.Error()
			}
			if want := strings.Join(test.want, "\n"); got != want {
				t.Errorf("got %s\nwant %s", got, want)
			}
		})
	}
}

func TestBudget(t *testing.T) {
	for name, test := range map[string]struct {
		memory, body int64
		line         int
		want         int64
	}{
		"half of the limit":          {256 * mib, 32 * mib, 64 * mib, 128 * mib},
		"no limit":                   {0, 32 * mib, 64 * mib, 128 * mib},
		"no limit, small messages":   {0, mib, mib, 128 * mib},
		"no limit, and large bodies": {0, 512 * mib, 64 * mib, 1024 * mib},
		"no limit, and large lines":  {0, 32 * mib, 512 * mib, 1024 * mib},
	} {
		config := Config{MemoryLimit: test.memory, BodyBytes: test.body, LineBytes: test.line}
		if got := config.budget(); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
