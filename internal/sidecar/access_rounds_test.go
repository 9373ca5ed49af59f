package sidecar

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// A call that asks its client for input goes on by another request, which names the tool again. The rules are asked
// each time, so a rule that is gone meanwhile ends the call.
func TestRuleIsRemovedBetweenRounds(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"stays": http.StatusOK, "is removed": http.StatusForbidden} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, echoForAll)
			_, url := startAdapter(t, g.guarded(nil))
			ask := func(more string) shown {
				t.Helper()
				body := requestText("tools/call", `"name":"ask","arguments":{},`+more+
					`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}`)
				return g.ask(http.MethodPost, url, g.token("alice", nil), body, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "ask")
			}
			first := ask("")
			var asked struct {
				Result struct {
					RequestState  string
					InputRequests map[string]any
				}
			}
			if err := json.Unmarshal([]byte(first.message), &asked); err != nil || asked.Result.RequestState == "" {
				t.Fatalf("the call does not ask for input: %s", first.message)
			}
			responses := map[string]any{}
			for key := range asked.Result.InputRequests {
				responses[key] = map[string]any{"action": "accept", "content": map[string]any{}}
			}
			text, err := json.Marshal(responses)
			if err != nil {
				t.Fatal(err)
			}
			if want == http.StatusForbidden {
				g.take(func(a *adapterapi.Access) { a.Rules[0].Tools = []string{"echo"} })
			}
			if got := ask(`"requestState":"` + asked.Result.RequestState + `","inputResponses":` + string(text) + `,`); got.status != want {
				t.Errorf("the second round: %d %s, want %d", got.status, got.message, want)
			}
		})
	}
}
