package rpc

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/test/hang"
)

func TestMembers(t *testing.T) {
	type member struct{ Name, Key, Value string }
	for text, want := range map[string][]member{
		`{}`:                             nil,
		`[ ]`:                            nil,
		`"{}"`:                           nil,
		`12`:                             nil,
		`null`:                           nil,
		`{"a":1}`:                        {{"a", `"a"`, "1"}},
		`{ "a" : -1.5e3 , "":true }`:     {{"a", `"a"`, "-1.5e3"}, {"", `""`, "true"}},
		"{\n\"a\"\t:\r\n[1,2] ,\"b\":3}": {{"a", `"a"`, "[1,2]"}, {"b", `"b"`, "3"}},
		`{"a":{"b":[{}]},"a":"}"}`:       {{"a", `"a"`, `{"b":[{}]}`}, {"a", `"a"`, `"}"`}},
		`{"\u0061\"":"\\","b":"\\\""}`:   {{`a"`, `"\u0061\""`, `"\\"`}, {"b", `"b"`, `"\\\""`}},
		`[1, "a" ,{"b":2},[]]`:           {{"", "", "1"}, {"", "", `"a"`}, {"", "", `{"b":2}`}, {"", "", "[]"}},
	} {
		var got []member
		for m := range Members([]byte(text), Span{0, len(text)}) {
			got = append(got, member{string(m.Name), text[m.Key.Start:m.Key.End], text[m.Value.Start:m.Value.End]})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for range Members(nil, Span{}) {
		t.Error("nothing has a member")
	}
}

func TestMembersCanBeLeft(t *testing.T) {
	text := []byte(`[1,2,3]`)
	seen := 0
	for m := range Members(text, Whole(text)) {
		if seen++; string(m.Value.Of(text)) == "2" {
			break
		}
	}
	if seen != 2 {
		t.Errorf("saw %d elements, want 2", seen)
	}
}

func TestLookup(t *testing.T) {
	for name, test := range map[string]struct{ object, want string }{
		"the first of two": {`{"b":1,"a":2,"a":3}`, "2"},
		"with an escape":   {`{"\u0061":2}`, "2"},
		"another case":     {`{"A":2}`, ""},
		"inside another":   {`{"b":{"a":2}}`, ""},
		"none":             {`{}`, ""},
		"an array":         {`["a",2]`, ""},
		"null":             {`null`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Lookup([]byte(test.object), Span{0, len(test.object)}, "a"); string(got.Of([]byte(test.object))) != test.want {
				t.Errorf("found %q, want %q", got.Of([]byte(test.object)), test.want)
			}
		})
	}
	if got := Lookup([]byte(`["a"]`), Span{0, 5}, ""); got.Present() {
		t.Error("an element has no name, not an empty one")
	}
}

// A string is gone over once, whatever is in it. To go over all of it for each of its
// characters would take hours.
func TestStringsTakeLinearTime(t *testing.T) {
	const most = 4 << 20
	for name, text := range map[string]string{
		"line breaks": `{"a":"` + strings.Repeat(`\n`, most/2) + `"}`,
		"quotes":      `{"a":"` + strings.Repeat(`\"`, most/2) + `"}`,
		"nesting":     `{"a":` + strings.Repeat(`[`, 900) + strings.Repeat(`]`, 900) + `}`,
	} {
		began := time.Now()
		for m := range Members([]byte(text), Span{0, len(text)}) {
			if m.Value.End != len(text)-1 {
				t.Errorf("%s: ends at %d of %d", name, m.Value.End, len(text))
			}
		}
		if took := time.Since(began); took > hang.Guard {
			t.Errorf("%s: took %s", name, took)
		}
	}
}

func TestMembersAllocateNothing(t *testing.T) {
	text := []byte(`{"a":1,"b":{"c":["\n",{}]},"d":"x"}`)
	count := 0
	if got := testing.AllocsPerRun(100, func() {
		for m := range Members(text, Whole(text)) {
			for range Members(text, m.Value) {
				count++
			}
		}
		if !Lookup(text, Whole(text), "d").Present() {
			t.Error("d is not found")
		}
	}); got != 0 {
		t.Errorf("going over members allocates %v times", got)
	}
}

// FuzzMembers compares what is found in an object with what the standard library finds.
// In what is no object, or no JSON at all, the search ends.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":1,"b":[1,{"c":"\"}"}],"":null}`, `{ "a\n" : -1.5e3 , "a":true}`, `{"a":"\\","b":"\\\""}`,
		`{"a":[1,2,"]"],"b":{}}`, `{`, `{"`, `{"a`, `{a:}`, `[,,}]`, `{"a":"\`, `{"a"`, `}{`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		got := map[string]json.RawMessage{}
		for m := range Members(object, Whole(object)) {
			got[string(m.Name)] = m.Value.Of(object)
			Lookup(object, m.Value, "a")
		}
		if _, err := Find(object, Whole(object), "a", "b"); err == nil {
			var edits Edits
			if _, err := edits.Take(object, Whole(object), "a", "b"); err != nil {
				t.Errorf("%q: found, and not taken: %v", object, err)
			}
		}
		if !json.Valid(object) || object[0] != '{' || object[len(object)-1] != '}' {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(object, &want); err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsRune(object, '\ufffd') || !bytes.Equal(bytes.ToValidUTF8(object, nil), object) {
			return // which names are the same is another question
		}
		if len(got) != len(want) {
			t.Fatalf("%s: found %d members, want %d", object, len(got), len(want))
		}
		for name, value := range want {
			if !bytes.Equal(value, got[name]) {
				t.Errorf("%s: %q is %s, want %s", object, name, got[name], value)
			}
		}
	})
}
