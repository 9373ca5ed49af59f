package audit

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// received is when the requests of these tests come in, and what it is in a line.
var received = time.Date(2026, 11, 15, 9, 30, 1, 500_000_999, time.FixedZone("", 3600))

const (
	receivedText = "2026-11-15T08:30:01.500000Z"
	head         = `{"kind":"Event","apiVersion":"audit.slipway.dev/v1alpha1","auditID":"00000000-0000-4000-8000-000000000000","stage":"ResponseComplete",` +
		`"requestReceivedTimestamp":"` + receivedText + `",`
)

// call is an allowed call of a tool, as the adapter fills it in.
func call() *Event {
	return &Event{
		Received: received, Completed: received.Add(12400 * time.Microsecond), Verb: "tools/call",
		Identity: &identity.Identity{
			Issuer: "kubernetes", User: "system:serviceaccount:agents:triage", Groups: []string{"system:serviceaccounts:agents"},
			TokenID: "4f1c", Scopes: []string{"scope"}, Expires: received,
		},
		Namespace: "demo", Server: "echo", Kind: "tools", Name: "search", Address: "10.0.3.7", UserAgent: "agent/1.0", Session: "17",
		Status: 200, Rule: 0, Access: 17, Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

func TestLine(t *testing.T) {
	tests := map[string]struct {
		event *Event
		want  string
	}{
		"allowed call of a ServiceAccount": {
			event: call(),
			want: head + `"stageTimestamp":"2026-11-15T08:30:01.512400Z","verb":"tools/call",` +
				`"user":{"username":"system:serviceaccount:agents:triage","groups":["system:serviceaccounts:agents"],"extra":{"issuer":["kubernetes"],"jti":["4f1c"],"client":[""],"act":[]}},` +
				`"objectRef":{"apiGroup":"mcp.slipway.dev","resource":"mcpservers","subresource":"tools","namespace":"demo","name":"echo","tool":"search"},"sourceIPs":["10.0.3.7"],"userAgent":"agent/1.0","session":17,` +
				`"responseStatus":{"code":200,"jsonrpc":0,"toolError":false},"durationMs":12.4,"annotations":{"authorization":"allow","rule":"0","access":"g17"},"trace":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`,
		},
		"refused without a token": {
			event: &Event{
				Received: received, Completed: received, Verb: "authenticate", Namespace: "demo", Server: "echo", Address: "fd00::7",
				Status: 401, Denied: "no_token", Rule: -1, Access: 1794732000000,
			},
			want: head + `"stageTimestamp":"` + receivedText + `","verb":"authenticate",` +
				`"user":{"username":"system:anonymous","groups":["system:unauthenticated"]},` +
				`"objectRef":{"apiGroup":"mcp.slipway.dev","resource":"mcpservers","namespace":"demo","name":"echo"},"sourceIPs":["fd00::7"],"userAgent":"",` +
				`"responseStatus":{"code":401,"jsonrpc":0,"toolError":false},"durationMs":0,"annotations":{"authorization":"deny","reason":"no_token","access":"g1794732000000"}}`,
		},
		"refused by the rules, with client and actors": {
			event: &Event{
				Received: received, Completed: received.Add(time.Microsecond), Verb: "prompts/get",
				Identity:  &identity.Identity{Issuer: "corp", User: "corp:alice", Groups: []string{"corp:sre", "system:authenticated"}, Client: "corp:bot", Actors: []string{"a", "b"}},
				Namespace: "demo", Server: "echo", Kind: "prompts", Name: "review", Status: 403, Code: 403, Denied: "no_rule", Rule: -1, Access: 2,
			},
			want: head + `"stageTimestamp":"2026-11-15T08:30:01.500001Z","verb":"prompts/get",` +
				`"user":{"username":"corp:alice","groups":["corp:sre","system:authenticated"],"extra":{"issuer":["corp"],"jti":[""],"client":["corp:bot"],"act":["a","b"]}},` +
				`"objectRef":{"apiGroup":"mcp.slipway.dev","resource":"mcpservers","subresource":"prompts","namespace":"demo","name":"echo","prompt":"review"},"sourceIPs":[],"userAgent":"",` +
				`"responseStatus":{"code":403,"jsonrpc":403,"toolError":false},"durationMs":0.001,"annotations":{"authorization":"deny","reason":"no_rule","access":"g2"}}`,
		},
		"resource, clock turned back, client gone, no document": {
			event: &Event{
				Received: received, Completed: received.Add(-time.Second).Round(0), Verb: "resources/read",
				Kind: "resources", Name: "docs://handbook/a?token=secret#secret", Code: -32603, ToolError: true, Rule: 63,
			},
			want: head + `"stageTimestamp":"2026-11-15T08:30:00.500000Z","verb":"resources/read",` +
				`"user":{"username":"system:anonymous","groups":["system:unauthenticated"]},` +
				`"objectRef":{"apiGroup":"mcp.slipway.dev","resource":"mcpservers","subresource":"resources","namespace":"","name":"","uri":"docs://handbook/a"},"sourceIPs":[],"userAgent":"",` +
				`"responseStatus":{"code":0,"jsonrpc":-32603,"toolError":true},"durationMs":0,"annotations":{"authorization":"allow","rule":"63","access":"g0"}}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := string(appendEvent([]byte("before\n"), [16]byte{}, test.event))
			if diff := cmp.Diff("before\n"+test.want+"\n", got); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
			decode(t, []byte(test.want))
		})
	}
}

// decode decodes a line, without its end.
func decode(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var decoded map[string]any
	if err := json.Unmarshal(text, &decoded); err != nil {
		t.Fatalf("decode %q: %v", text, err)
	}
	return decoded
}

// texts are the texts of an event: how to set one, and where the line has it.
var texts = map[string]struct {
	set  func(*Event, string)
	path []any
}{
	"verb":       {func(e *Event, s string) { e.Verb = s }, []any{"verb"}},
	"user":       {func(e *Event, s string) { e.Identity.User = s }, []any{"user", "username"}},
	"group":      {func(e *Event, s string) { e.Identity.Groups = []string{"g", s} }, []any{"user", "groups", 1}},
	"issuer":     {func(e *Event, s string) { e.Identity.Issuer = s }, []any{"user", "extra", "issuer", 0}},
	"token id":   {func(e *Event, s string) { e.Identity.TokenID = s }, []any{"user", "extra", "jti", 0}},
	"client":     {func(e *Event, s string) { e.Identity.Client = s }, []any{"user", "extra", "client", 0}},
	"actor":      {func(e *Event, s string) { e.Identity.Actors = []string{"a", s} }, []any{"user", "extra", "act", 1}},
	"kind":       {func(e *Event, s string) { e.Kind = s }, []any{"objectRef", "subresource"}},
	"namespace":  {func(e *Event, s string) { e.Namespace = s }, []any{"objectRef", "namespace"}},
	"server":     {func(e *Event, s string) { e.Server = s }, []any{"objectRef", "name"}},
	"tool":       {func(e *Event, s string) { e.Name = s }, []any{"objectRef", "tool"}},
	"prompt":     {func(e *Event, s string) { e.Kind, e.Name = "prompts", s }, []any{"objectRef", "prompt"}},
	"uri":        {func(e *Event, s string) { e.Kind, e.Name = "resources", s }, []any{"objectRef", "uri"}},
	"address":    {func(e *Event, s string) { e.Address = s }, []any{"sourceIPs", 0}},
	"user agent": {func(e *Event, s string) { e.UserAgent = s }, []any{"userAgent"}},
	"reason":     {func(e *Event, s string) { e.Denied = s }, []any{"annotations", "reason"}},
	"trace":      {func(e *Event, s string) { e.Trace = s }, []any{"trace"}},
}

// at returns what a decoded value has at a path.
func at(t *testing.T, value any, path []any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			value = value.(map[string]any)[step]
		case int:
			value = value.([]any)[step]
		}
	}
	return value
}

// mayNotStand reports whether a character may be in a line only as an escape.
func mayNotStand(r rune) bool {
	return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f || r == 0xfeff
}

// checkLine checks that bytes are one line that does nothing but show, and decodes it.
func checkLine(t *testing.T, got []byte) map[string]any {
	t.Helper()
	text, ended := strings.CutSuffix(string(got), "\n")
	if !ended || strings.ContainsFunc(text, mayNotStand) || !utf8.ValidString(text) {
		t.Errorf("not one harmless line: %q", got)
	}
	if len(got) > maxLine {
		t.Errorf("line has %d bytes, more than %d", len(got), maxLine)
	}
	return decode(t, []byte(text))
}

func TestHostileTexts(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"line breaks":    {"a\nb\r\nc", "a\nb\r\nc"},
		"second line":    {"a\"}\n{\"kind\":\"Event\"", "a\"}\n{\"kind\":\"Event\""},
		"quotes":         {`","verb":"x`, `","verb":"x`},
		"backslash":      {`a\`, `a\`},
		"escape":         {`a\u0022\n`, `a\u0022\n`},
		"ANSI":           {"\x1b[31mred\x1b[0m\x7f\b", "\x1b[31mred\x1b[0m\x7f\b"},
		"8-bit controls": {"\u009b31m\u0085", "\u009b31m\u0085"},
		"NUL":            {"a\x00b", "a\x00b"},
		"separators":     {"a\u2028b\u2029c", "a\u2028b\u2029c"},
		"direction":      {"a\u202eb\u2066c\u200f\ufeff", "a\u202eb\u2066c\u200f\ufeff"},
		"invalid UTF-8":  {"a\xff\xfeb\xc3", "a\ufffd\ufffdb\ufffd"},
		"surrogate":      {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
		"overlong":       {"\xc0\x8a", "\ufffd\ufffd"},
		"other scripts":  {"Größe 名前 🚢 \ufffd", "Größe 名前 🚢 \ufffd"},
		"markup":         {"<b>&amp;", "<b>&amp;"},
	}
	for name, test := range tests {
		for field, about := range texts {
			t.Run(name+" in "+field, func(t *testing.T) {
				hostile, harmless := call(), call()
				about.set(hostile, test.text)
				about.set(harmless, "harmless")
				got := checkLine(t, appendEvent(nil, [16]byte{}, hostile))
				want := checkLine(t, appendEvent(nil, [16]byte{}, harmless))
				if diff := cmp.Diff(test.want, at(t, got, about.path)); diff != "" {
					t.Errorf("text (-want +got):\n%s", diff)
				}
				// Nothing else changes.
				last := len(about.path) - 1
				switch parent := at(t, got, about.path[:last]).(type) {
				case map[string]any:
					parent[about.path[last].(string)] = "harmless"
				case []any:
					parent[about.path[last].(int)] = "harmless"
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("line (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestTextsAreCut(t *testing.T) {
	many := strings.Repeat
	tests := map[string]struct {
		text, want string
		truncated  bool
	}{
		"fits":                          {many("a", 256), many("a", 256), false},
		"one too many":                  {many("a", 257), many("a", 256), true},
		"two bytes each":                {many("ö", 257), many("ö", 256), true},
		"four bytes each fit":           {many("🚢", 256), many("🚢", 256), false},
		"four bytes each":               {many("🚢", 300), many("🚢", 256), true},
		"plain, then four bytes":        {many("a", 255) + "🚢🚢", many("a", 255) + "🚢", true},
		"invalid bytes":                 {many("\xff", 257), many("\ufffd", 256), true},
		"control characters":            {many("\n", 257), many("\n", 256), true},
		"beginning of a character left": {many("a", 256) + "\xc3", many("a", 256), true},
	}
	for name, test := range tests {
		for field, about := range texts {
			t.Run(name+" in "+field, func(t *testing.T) {
				e := call()
				about.set(e, test.text)
				got := checkLine(t, appendEvent(nil, [16]byte{}, e))
				if diff := cmp.Diff(test.want, at(t, got, about.path)); diff != "" {
					t.Errorf("text (-want +got):\n%s", diff)
				}
				// The trace comes after the annotations.
				_, truncated := at(t, got, []any{"annotations", annotationTruncated}).(string)
				if want := test.truncated && field != "trace"; truncated != want {
					t.Errorf("truncated is %t, want %t", truncated, want)
				}
			})
		}
	}
}

func TestURI(t *testing.T) {
	long := "docs://handbook/" + strings.Repeat("a", 240)
	tests := map[string]struct{ uri, want string }{
		"plain":                  {"docs://handbook/a", "docs://handbook/a"},
		"query":                  {"docs://handbook/a?k=secret", "docs://handbook/a"},
		"fragment":               {"docs://handbook/a#secret", "docs://handbook/a"},
		"fragment with query":    {"docs://handbook/a#secret?secret", "docs://handbook/a"},
		"query with fragment":    {"docs://handbook/a?secret#secret", "docs://handbook/a"},
		"only a query":           {"?secret", ""},
		"user and password":      {"postgres://me:secret@db/table", "postgres://db/table"},
		"token for a user":       {"https://secret@host", "https://host"},
		"several @":              {"https://se@cret@host/a@b", "https://host/a@b"},
		"@ in the path":          {"https://host/@user", "https://host/@user"},
		"@ in the query":         {"https://host?a=@secret", "https://host"},
		"no authority":           {"mailto:user@host", "mailto:user@host"},
		"empty authority":        {"file:///a@b", "file:///a@b"},
		"not a URI":              {"a@b", "a@b"},
		"long password":          {"https://" + strings.Repeat("secret", 100) + "@host/a", "https://host/a"},
		"fits":                   {long, long},
		"query past the cut":     {long + "a?secret", long},
		"long scheme":            {strings.Repeat("s", 300) + "://secret@host", strings.Repeat("s", 256)},
		"long without authority": {strings.Repeat("s", 253) + "://secret@host", strings.Repeat("s", 253) + "://"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := call()
			e.Kind, e.Name = "resources", test.uri
			got := appendEvent(nil, [16]byte{}, e)
			if diff := cmp.Diff(test.want, at(t, checkLine(t, got), []any{"objectRef", "uri"})); diff != "" {
				t.Errorf("URI (-want +got):\n%s", diff)
			}
			if strings.Contains(string(got), "secret") {
				t.Errorf("line has the secret: %s", got)
			}
		})
	}
}

func TestNameCountsOnlyWithKind(t *testing.T) {
	e := call()
	e.Kind = ""
	want := map[string]any{"apiGroup": "mcp.slipway.dev", "resource": "mcpservers", "namespace": "demo", "name": "echo"}
	if diff := cmp.Diff(want, checkLine(t, appendEvent(nil, [16]byte{}, e))["objectRef"]); diff != "" {
		t.Errorf("objectRef (-want +got):\n%s", diff)
	}
}

func TestSessionIsNumber(t *testing.T) {
	tests := map[string]struct {
		session string
		want    any
	}{
		"number":         {"17", 17.0},
		"leading zeros":  {"0017", 17.0},
		"none":           {"", nil},
		"id":             {"c2VjcmV0", nil},
		"negative":       {"-1", nil},
		"several values": {`1,"verb":"x"`, nil},
		"beyond 64 bits": {"18446744073709551616", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := call()
			e.Session = test.session
			if diff := cmp.Diff(test.want, checkLine(t, appendEvent(nil, [16]byte{}, e))["session"]); diff != "" {
				t.Errorf("session (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGroupsAndActorsLeftOut(t *testing.T) {
	tests := map[string]struct {
		groups, actors         int
		wantGroups, wantActors any
	}{
		"all named":   {groups: 32, actors: 8},
		"some groups": {groups: 35, wantGroups: "3"},
		"one actor":   {actors: 9, wantActors: "1"},
		"both":        {groups: 1032, actors: 18, wantGroups: "1000", wantActors: "10"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := call()
			e.Identity.Groups = slices.Repeat([]string{"g"}, test.groups)
			e.Identity.Actors = slices.Repeat([]string{"a"}, test.actors)
			got := checkLine(t, appendEvent(nil, [16]byte{}, e))
			if groups := at(t, got, []any{"user", "groups"}).([]any); len(groups) != min(test.groups, 32) {
				t.Errorf("line has %d groups", len(groups))
			}
			if actors := at(t, got, []any{"user", "extra", "act"}).([]any); len(actors) != min(test.actors, 8) {
				t.Errorf("line has %d actors", len(actors))
			}
			if diff := cmp.Diff(test.wantGroups, at(t, got, []any{"annotations", annotationGroupsLeftOut})); diff != "" {
				t.Errorf("groups left out (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wantActors, at(t, got, []any{"annotations", annotationActorsLeftOut})); diff != "" {
				t.Errorf("actors left out (-want +got):\n%s", diff)
			}
		})
	}
}

// largest is an event with a line that no other is longer than.
func largest() *Event {
	worst := strings.Repeat("\x00", maxCharacters+1)
	return &Event{
		// The year has the most digits that a time can have, and the sign.
		Received: time.Unix(math.MinInt64, 0), Completed: time.Unix(math.MinInt64, 0).Add(math.MaxInt64 - 999), Verb: worst,
		Identity: &identity.Identity{
			Issuer: worst, User: worst, Groups: slices.Repeat([]string{worst}, 1000), Client: worst, TokenID: worst, Actors: slices.Repeat([]string{worst}, 1000),
		},
		Namespace: worst, Server: worst, Kind: worst, Name: worst, Address: worst, UserAgent: worst, Session: strconv.FormatUint(math.MaxUint64, 10),
		Status: math.MinInt, Code: math.MinInt, Denied: worst, Rule: math.MaxInt, Access: math.MinInt64, Trace: worst,
	}
}

func TestLargestLine(t *testing.T) {
	got := appendEvent(nil, [16]byte{}, largest())
	checkLine(t, got)
	// maxLine is no larger than it must be: no text is counted that a line does not have.
	if len(got) <= maxLine-maxRest {
		t.Errorf("largest line has %d bytes, at least %d less than maxLine", len(got), maxRest)
	}
	t.Logf("largest line has %d bytes, maxLine is %d", len(got), maxLine)
}
