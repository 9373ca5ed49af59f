package plugin

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

var testSessions = []openSession{
	{"tickets-6f9c7d8b5-x2abc", adapterapi.SessionInfo{
		Number: "12", Client: "claude-code", ClientVersion: "2.1.4", Revision: "2025-11-25", AgeSeconds: 840, IdleSeconds: 3.2, Requests: 41, InFlight: 1, HeldBytes: 88 << 10,
	}},
	{"tickets-6f9c7d8b5-x2abc", adapterapi.SessionInfo{Number: "13", AgeSeconds: 0.4, IdleSeconds: 0.4, Requests: 1}},
	{"tickets-6f9c7d8b5-zz9zz", adapterapi.SessionInfo{Number: "12", Client: "wipe\x1b[2J\u202eevil" + strings.Repeat("x", 200), ClientVersion: "\n1", Revision: "2024-11-05", AgeSeconds: 1e6, IdleSeconds: 9e4}},
}

func TestPrintSessions(t *testing.T) {
	for name, test := range map[string]struct {
		screen table.Screen
		output string
		want   string
	}{
		"80 columns": {table.Screen{IsTerminal: true, Width: 80}, "", `
SESSION   CLIENT                      REVISION    AGE  IDLE  REQUESTS  IN FLIGHT
x2abc/12  claude-code 2.1.4           2025-11-25  14m  3s    41        1
x2abc/13  -                           -           0s   0s    1         0
zz9zz/12  wipe [2J` + "\uFFFD" + `evilxxxxxxxxxxxx…  2024-11-05  11d  25h   0         0
`},
		"wide": {table.Screen{}, outputWide, `
SESSION   CLIENT             REVISION    AGE  IDLE  REQUESTS  IN FLIGHT  HELD  POD
x2abc/12  claude-code 2.1.4  2025-11-25  14m  3s    41        1          88Ki  tickets-6f9c7d8b5-x2abc
`},
	} {
		e, out, _ := typed("", test.screen)
		e.output = test.output
		shown := testSessions
		if test.output == outputWide {
			shown = shown[:1]
		}
		if err := e.printSessions(shown); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for line := range strings.Lines(out.String()) {
			if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); test.screen.Width > 0 && width > test.screen.Width {
				t.Errorf("%s: %d characters: %s", name, width, line)
			}
		}
	}
}

func TestChooseSession(t *testing.T) {
	server := &mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: "support", Name: "tickets"}}
	for word, want := range map[string]string{
		"13":                         "tickets-6f9c7d8b5-x2abc/13",
		"tickets-6f9c7d8b5-zz9zz/12": "tickets-6f9c7d8b5-zz9zz/12",
		"zz9zz/12":                   "tickets-6f9c7d8b5-zz9zz/12",
		"12":                         "several pods have a session 12",
		"99":                         "no client has a session 99 with MCPServer tickets",
		"tickets-6f9c7d8b5-zz9zz/13": "no client has a session tickets-6f9c7d8b5-zz9zz/13 with MCPServer tickets",
		"":                           "no client has a session  with MCPServer tickets",
	} {
		chosen, err := chooseSession(testSessions, word, server)
		got := chosen.name()
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}

// What is printed for a shell means what it says there.
func TestShellWords(t *testing.T) {
	for want, words := range map[string][]string{
		"mcp connect --context arn:aws:eks:eu/x@y -n a b": {"mcp", "connect", "--context", "arn:aws:eks:eu/x@y", "-n", "a", "b"},
		`'my context' '$(rm -rf)' 'it'\''s' ''`:           {"my context", "$(rm -rf)", "it's", ""},
	} {
		if got := shellWords(words); got != want {
			t.Errorf("%q: %s, want %s", words, got, want)
		}
	}
}
