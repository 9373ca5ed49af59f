package sidecar

import (
	"net/http"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/test/hang"
)

// longer is a settle time that no test waits for.
const longer = 10 * hang.Guard

// An instance that goes away serves everything for the settle time, new sessions
// included. Only answers outside sessions tell clients to connect elsewhere. Without other pods
// that lead to it, its sessions do not outlive that.
func TestLeavingInstanceServesUntilItDrains(t *testing.T) {
	t.Parallel()
	adapter, url := startAdapterOn(t, newListener(t), func(c *config.Config) { c.SettleTime, c.DrainTimeout = longer, longer }, bothServer)
	before := mustOpen(t, url) // so the server works
	gomega.NewWithT(t).Eventually(func() bool {
		state, _ := adapter.env.Keeper.State()
		return state.Catalog != nil
	}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
	adapter.Leave()
	v := &visitor{t, url}
	session := v.open("")
	for _, in := range []string{before.session, session} {
		if status, text, header := v.do(http.MethodPost, "", in, pingMessage); status != http.StatusOK || header.Get("Connection") != "" {
			t.Errorf("in a session: %d %s, Connection %q", status, text, header.Get("Connection"))
		}
	}
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	status, text, header := v.do(http.MethodPost, "", "", list, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list")
	if status != http.StatusOK || header.Get("Connection") != "close" {
		t.Errorf("outside a session: %d %s, Connection %q", status, text, header.Get("Connection"))
	}
	adapter.Drain()
	gomega.NewWithT(t).Eventually(adapter.env.Sessions.Len).WithTimeout(hang.Guard).Should(gomega.BeZero())
	if status, _, header := v.do(http.MethodPost, "", session, pingMessage); status != http.StatusNotFound || header.Get("Connection") != "close" {
		t.Errorf("in a session that has ended: %d, Connection %q", status, header.Get("Connection"))
	}
	if status, _, _ := v.do(http.MethodPost, "", "", initializeMessage); status != http.StatusServiceUnavailable {
		t.Errorf("a session that is opened when it drains: %d", status)
	}
}

// The settle time ends by itself. An instance that was never ready, and so has no clients,
// has none.
func TestLeavingInstanceDrains(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		settle  time.Duration
		command []string
		ready   bool
	}{
		"after the settle time":         {time.Millisecond, []string{echoServer}, true},
		"at once if it was never ready": {longer, []string{"sleep", "1000"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapter, url := startAdapterOn(t, newListener(t), func(c *config.Config) { c.SettleTime = test.settle }, test.command...)
			if test.ready {
				mustOpen(t, url)
				gomega.NewWithT(t).Eventually(func() bool {
					state, _ := adapter.env.Keeper.State()
					return state.Catalog != nil
				}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
			}
			adapter.Leave()
			select {
			case <-adapter.Drained():
			case <-time.After(hang.Guard):
				t.Error("it does not drain")
			}
		})
	}
}
