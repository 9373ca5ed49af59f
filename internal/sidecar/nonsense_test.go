package sidecar

import (
	"strings"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/test/hang"
)

// A program that is no MCP server ends when its input does. That is not why it does
// not work, and no crash.
func TestServerThatAnswersWithNonsense(t *testing.T) {
	t.Parallel()
	adapter, _ := startAdapterOn(t, newListener(t), nil, "cat")
	var state keeper.State
	gomega.NewWithT(t).Eventually(func() bool {
		state, _ = adapter.env.Keeper.State()
		return state.Reason != adapterapi.Starting && state.Reason != adapterapi.Silent // as it may seem on a busy machine
	}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
	if state.Reason != adapterapi.Broken {
		t.Errorf("the first verdict is %s", state.Reason)
	}
	if state.Ready || !strings.Contains(state.Err.Error(), "sends the requests of the probe back") {
		t.Errorf("%s: %v", state.Reason, state.Err)
	}
	if got := published(t, adapter, "server_crashes_total")(); got != 0 {
		t.Errorf("%d crashes", got)
	}
}
