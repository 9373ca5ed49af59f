package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// fuzzed is a policy that restricts everything. Only one name of each kind is given as it stands, so that
// nearly everything that a parser reads into an answer is a find.
var fuzzed = adapterapi.Access{
	Mode: adapterapi.AccessRequired,
	Rules: []adapterapi.AccessRule{{
		Subjects: subjects{user("corp:ann")}, Tools: names{"ok", "list_*"}, Prompts: names{"ok"}, Resources: names{"a://ok", "a://b/"},
	}},
	Hidden: names{"list_secret"},
}

var fuzzer = &identity.Identity{Issuer: "corp", User: "corp:ann"}

// given is what fuzzed gives, by list, in a reading of its own.
var given = map[string]func(string) bool{
	"tools": func(name string) bool {
		return name == "ok" || strings.HasPrefix(name, "list_") && name != "list_secret"
	},
	"prompts": func(name string) bool { return name == "ok" },
	"resources": func(uri string) bool {
		return uri == "a://ok" || strings.HasPrefix(uri, "a://b/") && !oddURI.MatchString(uri)
	},
	"resourceTemplates": func(uri string) bool {
		return uri == "a://ok" || strings.HasPrefix(uri, "a://b/") && !oddURI.MatchString(uri)
	},
}

// checkFilter fails the test if some parser reads something out of a filtered answer that the caller must
// not see. It says whether a list passed.
func checkFilter(tb testing.TB, with []parser, rights *Rights, list int, original []byte) (passed bool) {
	tb.Helper()
	scanned := bytes.Clone(original)
	e, err := rpc.ScanLenient(scanned)
	if err != nil || e.Kind != rpc.Response {
		return false
	}
	l := listings[list]
	id := string(rpc.IDKey(e.ID.Of(scanned)))
	one := rights.Filter(l.method, bytes.Clone(scanned), &e)
	whichever := rights.FilterAny(bytes.Clone(scanned), &e)
	for filter, got := range map[string][]byte{l.method: one, "any": whichever} {
		again, err := rpc.ScanLenient(bytes.Clone(got))
		if err != nil {
			tb.Fatalf("%s makes %q of %q: %v", filter, got, original, err)
		}
		if string(rpc.IDKey(again.ID.Of(got))) != id {
			tb.Fatalf("%s changes the id of %q: %q", filter, original, got)
		}
		if again.Error.Present() {
			continue
		}
		passed = true
		for _, parser := range with {
			read, err := parser.read(got)
			if err != nil {
				continue // such a client sees nothing
			}
			for entry, name := range read {
				kind, _, _ := strings.Cut(entry, "/")
				// Filter looks at one list only: clients look at no other in the answer to this method.
				if (filter == "any" || kind == l.member) && !given[kind](name) {
					tb.Errorf("%s of %q is %q: %s reads %s as %q", filter, original, got, parser.name, entry, name)
				}
			}
		}
	}
	return passed
}

var filterSeeds = []string{
	`"tools":[{"name":"ok"},{"name":"x"},{"name":"list_a"},{"name":"list_secret"}],"nextCursor":"c"`,
	`"resultType":"complete","ttlMs":99999999,"cacheScope":"public","prompts":[{"name":"x"},{"name":"ok"}]`,
	`"resources":[{"uri":"a://ok"},{"uri":"a://b/c"},{"uri":"a://b/../c"},{"uri":"a://b/%2E"},{"name":"a","uri":"a://x"}]`,
	`"resourceTemplates":[{"uriTemplate":"a://b/{x}"},{"uriTemplate":"a://{x}"},{"uriTemplate":"a://ok"}]`,
	`"tools":[{"name":"\u006fk"},{"name":"\ud83d\ude00"}],"prompts":[{"name":"x"}],"x":[[{"name":"x"}]]`,
}

// Whatever a server answers, no client reads something out of it that the caller must not see.
func TestParsersSeeNoMore(t *testing.T) {
	all := parsers(t)
	rights := compile(t, fuzzed).For(fuzzer)
	for i, seed := range filterSeeds {
		if !checkFilter(t, all, rights, i%len(listings), []byte(result(seed))) {
			t.Errorf("%s does not pass", seed)
		}
	}
	for name, seed := range bypasses {
		t.Run(name, func(t *testing.T) { checkFilter(t, all, rights, 0, []byte(result(seed))) })
	}
}

// No member whose name is one character away from a known one both passes and is read as the known one by
// some parser. All that pass stand in one answer, for speed.
func TestParsersSeeNoMoreInOddMembers(t *testing.T) {
	all := parsers(t)
	rights := compile(t, fuzzed).For(fuzzer)
	for _, place := range places {
		for _, known := range place.names {
			var odd strings.Builder
			for spelling := range spellings(known) {
				member := string(rpc.AppendString([]byte{','}, spelling)) + `:` + place.secret
				answer := []byte(result(fmt.Sprintf(place.result, member)))
				e, err := rpc.ScanLenient(answer)
				if err != nil {
					t.Fatal(err)
				}
				if got := rights.FilterAny(answer, &e); bytes.Contains(got, []byte("secret")) {
					odd.WriteString(member)
				}
			}
			if !checkFilter(t, all, rights, place.list, []byte(result(fmt.Sprintf(place.result, odd.String())))) || odd.Len() < 10_000 {
				t.Errorf("spellings of %s pass one by one, but not together, or hardly any", known)
			}
		}
	}
}

// spellings are those that are one character away from a name. The characters are those of ASCII and
// Latin, where case and dots are odd, those that do not show, and the Kelvin sign.
func spellings(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, span := range [][2]rune{{0, 0x17f}, {0x2000, 0x2030}, {0x212a, 0x212b}, {0xfeff, 0xfeff}} {
			for r := span[0]; r <= span[1]; r++ {
				for at := range len(name) + 1 {
					if !yield(name[:at] + string(r) + name[at:]) {
						return
					}
					if at < len(name) && string(r) != name[at:at+1] && !yield(name[:at]+string(r)+name[at+1:]) {
						return
					}
				}
			}
		}
	}
}

// places are results with room for one member more, beside what it may be taken for.
var places = []struct {
	list           int
	result, secret string
	names          names
}{
	{0, `"tools":[{"name":"ok"}]%s`, `[{"name":"secret"}]`, names{"tools", "prompts"}},
	{0, `"tools":[{"name":"ok"%s}]`, `"secret"`, names{"name"}},
	{1, `"prompts":[{"name":"ok"%s}]`, `"secret"`, names{"name"}},
	{2, `"x":1%s`, `[{"uri":"a://secret"}]`, names{"resources"}},
	{2, `"resources":[{"uri":"a://ok"%s}]`, `"secret"`, names{"uri"}},
	{3, `"resourceTemplates":[{"uriTemplate":"a://ok"}]%s`, `[{"uriTemplate":"a://secret"}]`, names{"resourceTemplates"}},
	{3, `"resourceTemplates":[{"uriTemplate":"a://ok"%s}]`, `"secret"`, names{"uriTemplate"}},
}

func FuzzFilter(f *testing.F) {
	for i, seed := range filterSeeds {
		f.Add(uint8(i), []byte(result(seed)))
	}
	for _, seed := range bypasses {
		if len(seed) < 1000 {
			f.Add(uint8(0), []byte(result(seed)))
		}
	}
	all := parsers(f)
	rights := compile(f, fuzzed).For(fuzzer)
	f.Fuzz(func(t *testing.T, list uint8, answer []byte) {
		checkFilter(t, all, rights, int(list)%len(listings), answer)
	})
}

// FuzzFilterMembers does the same with results that have one odd member more.
func FuzzFilterMembers(f *testing.F) {
	for place := range places {
		for _, name := range []string{`tools`, `Tools`, `to\u006fls`, `tools\u0000`, ` tools`, `name`, `NAME`, `n\u0061me`, `name\t`, `uri`, `urı`, `uriTemplate`, `__proto__`, `resultType`, `x`} {
			f.Add(uint8(place), name, places[place].secret)
			f.Add(uint8(place), name, `{"name":"secret","0":{"name":"secret"}}`)
		}
	}
	all := parsers(f)
	rights := compile(f, fuzzed).For(fuzzer)
	f.Fuzz(func(t *testing.T, place uint8, name, value string) {
		at := places[int(place)%len(places)]
		checkFilter(t, all, rights, at.list, []byte(result(fmt.Sprintf(at.result, `,"`+name+`":`+value))))
	})
}

// FuzzDecide holds decisions against what encoding/json reads: an allowed message names nothing but what
// the rules give, and a message is not denied without need.
func FuzzDecide(f *testing.F) {
	for _, seed := range []string{
		callTool("ok"), callTool("x"), callTool(`\u006fk`), callTool("list_a"), callTool("list_secret"), getPrompt("ok"), getPrompt("x"), read("a://ok"), read("a://b/c"),
		read("a://b/%2e%2E/c"), read(`a://b/\\`), listen(`"resourceSubscriptions":["a://ok","a://x"]`), listen(`"toolsListChanged":true,"resourceSubscriptions":["a://b/c"]`),
		complete(`"type":"ref/prompt","name":"ok"`), complete(`"type":"ref/resource","uri":"a://b/{c}"`), complete(`"type":"ref/resource","uri":"a://{c}"`),
		request("tools/call", `"name":["ok"]`), request("tools/call", `"_meta":{"name":"x"},"arguments":{"name":"x"}`), request("tasks/get", `"taskId":"t"`), request("x/y", `"name":"ok"`),
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"x"}}`, `{"jsonrpc":"2.0","id":1,"result":{"method":"tools/call"}}`,
	} {
		f.Add([]byte(seed))
	}
	rights := compile(f, fuzzed).For(fuzzer)
	f.Fuzz(func(t *testing.T, message []byte) {
		e, err := rpc.Scan(message)
		if err != nil {
			return
		}
		d := rights.Decide(message, &e)
		uses, free := usesOf(t, message)
		if d.Denied == Allowed && slices.ContainsFunc(uses, func(u use) bool { return !given[u.list](u.name) }) {
			t.Errorf("%q is allowed, and uses %v", message, uses)
		}
		if d.Denied == Allowed && uses == nil && !free {
			t.Errorf("%q is allowed, and says not what it uses", message)
		}
		if d.Denied == DeniedRule && !slices.ContainsFunc(uses, func(u use) bool { return !given[u.list](u.name) }) {
			t.Errorf("%q is denied, and uses only %v", message, uses)
		}
		if (d.Text == "") != (d.Denied == Allowed) {
			t.Errorf("%q: %+v", message, d)
		}
	})
}

type use struct{ list, name string }

// usesOf is what a server reads a message to use, and whether its method may use nothing.
func usesOf(t *testing.T, message []byte) (uses []use, free bool) {
	var m struct {
		Method string `json:"method"`
		Params struct {
			Name          any `json:"name"`
			URI           any `json:"uri"`
			Notifications any `json:"notifications"`
			Ref           any `json:"ref"`
		} `json:"params"`
	}
	if err := json.Unmarshal(message, &m); err != nil {
		t.Fatalf("%q: %v", message, err)
	}
	add := func(list string, value any) {
		if name, ok := value.(string); ok {
			uses = append(uses, use{list, name})
		}
	}
	switch m.Method {
	case "tools/call":
		add("tools", m.Params.Name)
	case "prompts/get":
		add("prompts", m.Params.Name)
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		add("resources", m.Params.URI)
	case "completion/complete":
		ref, _ := m.Params.Ref.(map[string]any)
		add("prompts", ref["name"])
		add("resourceTemplates", ref["uri"])
	case "subscriptions/listen":
		free = true
		filter, _ := m.Params.Notifications.(map[string]any)
		uris, _ := filter["resourceSubscriptions"].([]any)
		for _, uri := range uris {
			add("resources", uri)
		}
	case "", "initialize", "server/discover", "ping", "logging/setLevel", "tools/list", "prompts/list", "resources/list", "resources/templates/list":
		free = true
	default:
		free = strings.HasPrefix(m.Method, "notifications/") || strings.HasPrefix(m.Method, "tasks/")
	}
	return uses, free
}
