package sidecar

import (
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
)

// A program that is no MCP server ends when its input does. That is not why it does
// not work, and no crash.
func TestServerThatAnswersWithNonsense(t *testing.T) {
	adapter, _ := startAdapterOn(t, newListener(t), nil, "cat")
	var state keeper.State
	gomega.NewWithT(t).Eventually(func() bool {
		state, _ = adapter.keeper.State()
		return state.Reason != keeper.Starting
	}).WithTimeout(20 * time.Second).Should(gomega.BeTrue())
	if state.Ready || state.Reason != keeper.Broken || !strings.Contains(state.Err.Error(), "sends back what it is sent, which is no answer") {
		t.Errorf("%s: %v", state.Reason, state.Err)
	}
	if got := adapter.backend.processes.Crashes.Load(); got != 0 {
		t.Errorf("%d crashes", got)
	}
}
