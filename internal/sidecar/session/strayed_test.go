package session

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// The answer to a list that the session has forgotten reaches a newer call with the same id. It shows the
// client no more than the list would have.
func TestAnswerToAForgottenList(t *testing.T) {
	policy, err := rules.Compile(&adapterapi.Access{Mode: adapterapi.AccessNone, Hidden: []string{"secret"}})
	if err != nil {
		t.Fatal(err)
	}
	from := &caller.Caller{Grant: &access.Grant{Rights: policy.For(nil)}}
	const list = `{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"echo"},{"name":"secret"}]}}`
	for name, forget := range map[string]func(h *harness){
		"cancelled": func(h *harness) {
			h.tell(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
			time.Sleep(h.limits.CancelGrace)
		},
		"timed out": func(h *harness) { time.Sleep(h.limits.CallTimeout) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, testLimits)
				defer h.End(ErrClient)
				request := h.message(`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`)
				request.From = from
				if _, err := h.Call(t.Context(), request); err != nil {
					t.Fatal(err)
				}
				forget(h)
				h.Sweep(t.Context(), time.Now())
				stream := h.call(7, `"name":"echo"`)
				h.say(list)
				got := strings.Join(taken(stream), " ")
				if !strings.Contains(got, "echo") || strings.Contains(got, "secret") {
					t.Errorf("the client gets %s", got)
				}
			})
		})
	}
}
