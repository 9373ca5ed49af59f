package sidecar

import (
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// Each check comes before the next: the token, the body, the headers that repeat the body, the rules. The rules
// are not asked about a request that is not what its headers say.
func TestOrderOfChecks(t *testing.T) {
	t.Parallel()
	call := func(tool string) string {
		return requestText("tools/call", `"name":"`+tool+`","arguments":{"text":"x"},`+modernMeta)
	}
	headers := func(version, method, name string) []string {
		return []string{"Mcp-Protocol-Version", version, "Mcp-Method", method, "Mcp-Name", name}
	}
	right := headers("2026-07-28", "tools/call", "seen")
	tests := map[string]struct {
		user, body string
		headers    []string
		status     int
		code       string
	}{
		"no token, and nothing else is right":  {"", "{", headers("2026-07-28", "tools/list", "echo"), 401, `"code":401`},
		"no body, and the headers differ":      {"alice", "{", headers("2026-07-28", "tools/list", "echo"), 400, "-32700"},
		"denied":                               {"alice", call("seen"), right, 403, `"code":403`},
		"denied, another name":                 {"alice", call("seen"), headers("2026-07-28", "tools/call", "echo"), 400, "-32020"},
		"denied, a name in Base64":             {"alice", call("seen"), headers("2026-07-28", "tools/call", "=?base64?ZWNobw==?="), 400, "-32020"},
		"denied, the name in Base64":           {"alice", call("seen"), headers("2026-07-28", "tools/call", "=?base64?c2Vlbg==?="), 403, `"code":403`},
		"denied, another method":               {"alice", call("seen"), headers("2026-07-28", "tools/list", "seen"), 400, "-32020"},
		"denied, another version":              {"alice", call("seen"), headers("2025-11-25", "tools/call", "seen"), 400, "-32020"},
		"blocked, another name":                {"mallory", call("seen"), headers("2026-07-28", "tools/call", "echo"), 400, "-32020"},
		"no rule, another name":                {"nobody", call("seen"), headers("2026-07-28", "tools/call", "echo"), 400, "-32020"},
		"scopes are missing, another name":     {"carol", call("seen"), headers("2026-07-28", "tools/call", "echo"), 400, "-32020"},
		"allowed, the name of a denied tool":   {"alice", call("echo"), right, 400, "-32020"},
		"allowed":                              {"alice", call("echo"), headers("2026-07-28", "tools/call", "echo"), 200, `"id":7`},
		"a list, with the name of a tool":      {"alice", requestText("tools/list", modernMeta), headers("2026-07-28", "tools/list", "echo"), 400, "-32020"},
		"a subscription, denied, and its name": {"alice", requestText("subscriptions/listen", `"notifications":{"resourceSubscriptions":["matrix://plain"]},`+modernMeta), headers("2026-07-28", "tools/list", ""), 400, "-32020"},
	}
	for _, name := range []string{"a process for each session", "sessions only", "2026-07-28 only", "one process for all", "HTTP, answers in events", "HTTP, 2026-07-28 only", "HTTP+SSE"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, func(a *adapterapi.Access) { a.Hidden = nil })
			url := startMatrix(t, g, name)
			for what, test := range tests {
				token := ""
				if test.user != "" {
					token = g.token(test.user, nil)
				}
				got := g.ask(http.MethodPost, url, token, test.body, test.headers...)
				if got.status != test.status || !strings.Contains(got.message, test.code) {
					t.Errorf("%s: %d %s, want %d with %s", what, got.status, got.message, test.status, test.code)
				}
			}
		})
	}
}
