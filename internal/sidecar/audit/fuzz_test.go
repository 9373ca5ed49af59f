package audit

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// FuzzLine checks that every event makes one JSON object on one line, whose texts are beginnings of the
// event's.
func FuzzLine(f *testing.F) {
	f.Add("tools/call", "system:serviceaccount:agents:triage", "system:authenticated", uint8(3), "tools", "search", "agent/1.0", "17", "", 200, int64(12400))
	f.Add("resources/read", "corp:a\xffb", "g\n", uint8(40), "resources", "https://me:secret@host/a?b#c", "\x1b[0m\u2028", "x", "no_rule", -1, int64(-1))
	f.Add(strings.Repeat("\x00", 300), "", "", uint8(255), "", "name", strings.Repeat("ö", 300), "007", "\u202e", 0, int64(1)<<62)
	f.Fuzz(func(t *testing.T, verb, user, group string, groups uint8, kind, name, agent, session, denied string, number int, nanos int64) {
		e := &Event{
			Received: time.Unix(0, 0), Completed: time.Unix(0, nanos), Verb: verb, Kind: kind, Name: name, UserAgent: agent, Session: session, Denied: denied,
			Namespace: user, Server: group, Address: verb, Trace: agent, Status: number, Code: number, Rule: number, Access: nanos, ToolError: groups%2 == 0,
			Identity: &identity.Identity{
				User: user, Groups: slices.Repeat([]string{group}, int(groups)), Issuer: group, TokenID: user, Client: name, Actors: slices.Repeat([]string{agent}, int(groups)),
			},
		}
		if groups == 1 {
			e.Identity = nil
		}
		decoded := checkLine(t, appendEvent(nil, [16]byte{}, e))
		wants := map[string]string{"verb": verb, "user agent": agent, "server": group}
		for field, want := range wants {
			if diff := cmp.Diff(beginning(want), at(t, decoded, texts[field].path)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", field, diff)
			}
		}
		if uri, _ := at(t, decoded, []any{"objectRef", "uri"}).(string); strings.ContainsAny(uri, "?#") {
			t.Errorf("URI %q has a query or a fragment", uri)
		}
	})
}

// beginning is what a line has of a text, made in the simple way.
func beginning(text string) string {
	characters := []rune(text) // a byte that is not UTF-8 becomes U+FFFD
	return string(characters[:min(len(characters), maxCharacters)])
}
