package session

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// ruled is a session whose client has the rights that a document gives to every caller.
type ruled struct {
	*harness
	gate       *access.Gate
	generation int64
}

func newRuled(t *testing.T, limits Limits) *ruled {
	t.Helper()
	return &ruled{harness: newHarness(t, limits), gate: access.New(access.Options{Log: logr.Discard()})}
}

// take puts a document with one rule into effect. The session does not know yet.
func (r *ruled) take(rule adapterapi.AccessRule) {
	r.t.Helper()
	r.generation++
	rule.Subjects = []adapterapi.AccessSubject{{Kind: adapterapi.SubjectGroup, Name: adapterapi.GroupUnauthenticated}}
	text, err := json.Marshal(adapterapi.Access{
		Version: adapterapi.AccessVersion, Generation: r.generation, Mode: adapterapi.AccessNone, Server: adapterapi.AccessServer{Namespace: "demo", Name: "echo"},
		Rules: []adapterapi.AccessRule{rule}, Audit: adapterapi.AccessAudit{Level: adapterapi.AuditNone, WhenFull: adapterapi.AuditDrop},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.gate.Take(text); err != nil {
		r.t.Fatal(err)
	}
}

// change puts a document with one rule into effect, and tells the session.
func (r *ruled) change(rule adapterapi.AccessRule) {
	r.t.Helper()
	r.take(rule)
	r.RulesChanged()
	synctest.Wait()
}

// request sends a request with the rights that the client has now.
func (r *ruled) request(text string) *Stream {
	r.t.Helper()
	grant, refused := r.gate.Admit(access.Head{})
	if refused != nil {
		r.t.Fatal(refused.Text)
	}
	message := r.message(text)
	message.From = callerWith(grant)
	stream, err := r.Call(r.t.Context(), message)
	if err != nil {
		r.t.Fatal(err)
	}
	return stream
}

func callerWith(grant *access.Grant) *caller.Caller { return &caller.Caller{Grant: grant} }

// initialize opens the session with a server that has these capabilities.
func (r *ruled) initialize(capabilities string) {
	r.t.Helper()
	stream := r.request(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{}}`)
	r.say(`{"jsonrpc":"2.0","id":"i","result":{"capabilities":` + capabilities + `}}`)
	taken(stream)
	stream.Detach()
}

const (
	toolsChanged   = `"method":"notifications/tools/list_changed"`
	promptsChanged = `"method":"notifications/prompts/list_changed"`
	announcesAll   = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}`
)

func TestRulesChanged(t *testing.T) {
	echo := adapterapi.AccessRule{Tools: []string{"echo"}}
	for name, test := range map[string]struct {
		capabilities string
		after        adapterapi.AccessRule
		want         []string
	}{
		"a tool":                   {announcesAll, adapterapi.AccessRule{Tools: []string{"add"}}, []string{toolsChanged}},
		"a tool and a prompt":      {announcesAll, adapterapi.AccessRule{Tools: []string{"add"}, Prompts: []string{"p"}}, []string{toolsChanged, promptsChanged}},
		"the same rights":          {announcesAll, adapterapi.AccessRule{Tools: []string{"echo", "echo"}}, nil},
		"not announced":            {`{"tools":{},"prompts":{"listChanged":true}}`, adapterapi.AccessRule{Tools: []string{"add"}}, nil},
		"only prompts are":         {`{"tools":{"listChanged":false},"prompts":{"listChanged":true}}`, adapterapi.AccessRule{Prompts: []string{"p"}}, []string{promptsChanged}},
		"no capabilities":          {`null`, adapterapi.AccessRule{Tools: []string{"add"}}, nil},
		"capabilities of nonsense": {`{"tools":[{"listChanged":true}]}`, adapterapi.AccessRule{Tools: []string{"add"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRuled(t, testLimits)
				defer r.End(ErrClient)
				r.take(echo)
				r.initialize(test.capabilities)
				general := r.open()
				r.change(test.after)
				r.RulesChanged() // has nothing to add
				synctest.Wait()
				expect(t, "the client hears", taken(general), test.want...)
			})
		})
	}
}

// A message that the client sends between a change and its announcement does not keep the client from hearing of
// the change, and neither does one that was on its way before.
func TestRulesChangedBetweenMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuled(t, testLimits)
		defer r.End(ErrClient)
		r.take(adapterapi.AccessRule{Tools: []string{"echo"}})
		r.initialize(announcesAll)
		general := r.open()
		before, _ := r.gate.Admit(access.Head{})
		r.take(adapterapi.AccessRule{Tools: []string{"add"}})
		r.request(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		r.RulesChanged()
		synctest.Wait()
		expect(t, "after a message by the new document", taken(general), toolsChanged)
		late := r.message(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		late.From = callerWith(before)
		if _, err := r.Call(t.Context(), late); err != nil {
			t.Fatal(err)
		}
		r.change(adapterapi.AccessRule{Tools: []string{"add", "add"}})
		expect(t, "after a late message by the old document", taken(general))
		r.change(adapterapi.AccessRule{Tools: []string{"echo"}})
		expect(t, "after another change", taken(general), toolsChanged)
	})
}

// A client that does not read does not delay others, and many documents add little to what waits for it.
func TestRulesChangedWhileTheClientDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits
		limits.TotalBytes = 10
		r := newRuled(t, limits)
		defer r.End(ErrClient)
		r.take(adapterapi.AccessRule{Tools: []string{"echo"}})
		r.initialize(announcesAll)
		general := r.open()
		r.say(note)
		for range 10 {
			r.change(adapterapi.AccessRule{Tools: []string{"add"}, Prompts: []string{"p"}})
			r.change(adapterapi.AccessRule{Tools: []string{"echo"}})
		}
		var got []string
		for more := taken(general); more != nil; more = taken(general) {
			got = append(got, more...)
			synctest.Wait()
		}
		if all := strings.Join(got, " "); len(got) > 1+4 || !strings.Contains(all, toolsChanged) || !strings.Contains(all, promptsChanged) {
			t.Errorf("the client hears %s", all)
		}
	})
}

// A session that ends while the client does not read leaves nothing behind.
func TestRulesChangedInASessionThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits
		limits.TotalBytes = 10
		r := newRuled(t, limits)
		r.take(adapterapi.AccessRule{Tools: []string{"echo"}})
		r.initialize(announcesAll)
		r.open()
		r.say(note)
		r.change(adapterapi.AccessRule{Tools: []string{"add"}, Prompts: []string{"p"}})
		r.End(ErrClient) // or else the bubble has a goroutine left
		r.change(adapterapi.AccessRule{Tools: []string{"echo"}})
	})
}

// A server may tell of a part of the resource that the client has subscribed to. The client hears of it if it may
// read the part.
func TestUpdatesOfParts(t *testing.T) {
	const (
		whole = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"d:/a"}}`
		part  = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"d:/a/b"}}`
		odd   = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"d:/a/../b"}}`
		none  = `{"jsonrpc":"2.0","method":"notifications/resources/updated"}`
	)
	for name, test := range map[string]struct {
		resources []string
		want      []string
	}{
		"only the resource": {[]string{"d:/a"}, []string{whole}},
		"its parts, too":    {[]string{"d:/a", "d:/a/"}, []string{whole, part}},
		"everything":        {[]string{"*"}, []string{whole, part, odd}},
		"nothing":           {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRuled(t, testLimits)
				defer r.End(ErrClient)
				r.take(adapterapi.AccessRule{Tools: []string{"echo"}, Resources: test.resources})
				r.initialize(announcesAll)
				general := r.open()
				for _, update := range []string{whole, part, odd, none} {
					r.say(update)
				}
				r.say(note)
				var got []string
				for _, text := range taken(general) {
					got = append(got, `{"jsonrpc":"2.0",`+text+`}`)
				}
				expect(t, "the client hears", got, append(test.want, note)...)
				if held := r.Usage().Held; held > int64(r.replay.bytes) {
					t.Errorf("the session holds %d bytes", held)
				}
			})
		})
	}
}

// A document that takes effect while the server of a session starts counts as the one that the client knows.
func TestRulesChangedWhileTheSessionOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuled(t, testLimits)
		defer r.End(ErrClient)
		echo := adapterapi.AccessRule{Tools: []string{"echo"}}
		r.take(echo)
		grant, _ := r.gate.Admit(access.Head{})
		r.take(adapterapi.AccessRule{Tools: []string{"add"}})
		message := r.message(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{}}`)
		message.From = callerWith(grant)
		stream, err := r.Call(t.Context(), message)
		if err != nil {
			t.Fatal(err)
		}
		r.say(`{"jsonrpc":"2.0","id":"i","result":{"capabilities":` + announcesAll + `}}`)
		taken(stream)
		stream.Detach()
		general := r.open()
		r.change(echo)
		if got := taken(general); len(got) != 1 || !strings.Contains(got[0], toolsChanged) {
			t.Errorf("the client hears %q", got)
		}
	})
}
