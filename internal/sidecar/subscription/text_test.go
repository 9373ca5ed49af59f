package subscription

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

func parse(t *testing.T, params string) (Filter, bool, error) {
	t.Helper()
	message := []byte(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"` + params + `}`)
	envelope, err := rpc.Scan(message)
	if err != nil {
		t.Fatal(err)
	}
	return Parse(message, envelope.Params)
}

// N-01, N-02: what stands in a request, and in its acknowledgment.
func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		notifications string
		want          Filter
		more          bool
		text          string // as it is written again
	}{
		"nothing":    {`{}`, Filter{}, false, `{}`},
		"a list":     {`{"promptsListChanged":true}`, Filter{Lists: Set{1: true}}, false, `{"promptsListChanged":true}`},
		"not a list": {`{"toolsListChanged":false,"resourcesListChanged": true }`, Filter{Lists: Set{2: true}}, false, `{"resourcesListChanged":true}`},
		"null":       {`{"toolsListChanged":null,"resourceSubscriptions":null}`, Filter{}, false, `{}`},
		"resources": {`{"resourceSubscriptions":["b","a\"","b",""]}`, Filter{URIs: []string{"", `a"`, "b"}}, false,
			`{"resourceSubscriptions":["","a\"","b"]}`},
		"no resources": {`{"resourceSubscriptions":[]}`, Filter{}, false, `{}`},
		"all": {`{"resourceSubscriptions":["a"],"resourcesListChanged":true,"promptsListChanged":true,"toolsListChanged":true}`,
			Filter{Lists: Set{true, true, true}, URIs: []string{"a"}}, false,
			`{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["a"]}`},
		"tasks":        {`{"taskIds":["t"]}`, Filter{}, true, `{}`},
		"tasks, too":   {`{"taskIds":null,"toolsListChanged":true,"x":{},"x":{}}`, Filter{Lists: Set{true}}, true, `{"toolsListChanged":true}`},
		"another name": {`{"toolsChanged":true}`, Filter{}, true, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, more, err := parse(t, `,"params":{"notifications":`+test.notifications+`,"_meta":{}}`)
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" || more != test.more || err != nil {
				t.Errorf("more is %v, error %v (-want +got):\n%s", more, err, diff)
			}
			if text := got.String(); text != test.text {
				t.Errorf("it is written as %s, want %s", text, test.text)
			}
		})
	}
}

// What a filter must not be, and what one parser takes for another filter than the next.
func TestParseFails(t *testing.T) {
	for name, params := range map[string]string{
		"no params":            ``,
		"no filter":            `,"params":{}`,
		"a filter that is not": `,"params":{"notifications":null}`,
		"a list of filters":    `,"params":{"notifications":[{}]}`,
		"two filters":          `,"params":{"notifications":{},"notifications":{}}`,
		"two spellings":        `,"params":{"notifications":{},"Notifications":{}}`,
		"a text for true":      `,"params":{"notifications":{"toolsListChanged":"true"}}`,
		"a number for true":    `,"params":{"notifications":{"toolsListChanged":1}}`,
		"a list, twice":        `,"params":{"notifications":{"toolsListChanged":true,"toolsListChanged":false}}`,
		"a list, misspelled":   `,"params":{"notifications":{"toolslistchanged":true}}`,
		"one URI":              `,"params":{"notifications":{"resourceSubscriptions":"a"}}`,
		"a number for a URI":   `,"params":{"notifications":{"resourceSubscriptions":["a",1]}}`,
		"null for a URI":       `,"params":{"notifications":{"resourceSubscriptions":["a",null]}}`,
		"URIs, twice":          `,"params":{"notifications":{"resourceSubscriptions":["a"],"resourceSubscriptions":["b"]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, more, err := parse(t, params); err == nil || !got.IsEmpty() || more {
				t.Errorf("got %s, error %v", got, err)
			}
		})
	}
}

// Whatever a client or a server sends, a filter that was read is written as a filter that
// asks for the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"toolsListChanged":true,"resourceSubscriptions":["a://x","a://x","<\u2028>"]}`))
	f.Add([]byte(`{"resourcesListChanged":null,"taskIds":["é"]}`))
	f.Fuzz(func(t *testing.T, notifications []byte) {
		within := func(notifications []byte) ([]byte, rpc.Span, bool) {
			message := append(append([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"notifications":`), notifications...), "}}"...)
			envelope, err := rpc.Scan(message)
			return message, envelope.Params, err == nil
		}
		message, params, ok := within(notifications)
		if !ok {
			return
		}
		read, _, err := Parse(message, params)
		if err != nil {
			return
		}
		message, params, ok = within(read.Append(nil))
		if !ok {
			t.Fatalf("%s is written as %s", notifications, message)
		}
		again, more, err := Parse(message, params)
		if diff := cmp.Diff(read, again, cmpopts.EquateEmpty()); diff != "" || more || err != nil {
			t.Errorf("more is %v, error %v (-first +second):\n%s", more, err, diff)
		}
		for method, uri := range read.Each {
			if !read.Matches(method, uri) {
				t.Errorf("the filter does not ask for its own %s %q", method, uri)
			}
		}
	})
}

// N-03: a change names the subscription, with the id as the client spelled it.
func TestNotification(t *testing.T) {
	for method, want := range map[string]string{
		MethodToolsChanged: `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"a\/b"}}}`,
		MethodUpdated:      `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:\"y\"","_meta":{"io.modelcontextprotocol/subscriptionId":"a\/b"}}}`,
	} {
		if got := string(Notification(method, `x:"y"`, Tag([]byte(`"a\/b"`)))); got != want {
			t.Errorf("%s: got\n     %s\nwant %s", method, got, want)
		}
	}
}

// A server announces changes of a list if its capabilities say so. Anything but true says nothing.
func TestAnnounced(t *testing.T) {
	for text, want := range map[string]Set{
		`{"tools":{"listChanged":true},"prompts":{"listChanged":false},"resources":{"subscribe":true,"listChanged":true}}`: {true, false, true},
		`{"tools":{},"prompts":{"listChanged":true},"resources":{"listChanged":"true"}}`:                                   {false, true, false},
		`{"tools":true,"prompts":["listChanged",true],"resources":null,"listChanged":true}`:                                {},
		`{}`: {},
		``:   {},
	} {
		if got := Announced([]byte(text), rpc.Whole([]byte(text))); got != want {
			t.Errorf("%s announces %v", text, got)
		}
	}
}
