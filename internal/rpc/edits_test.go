package rpc

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// J-23: members are dropped with the commas that belong to them, and nothing else is.
func TestFilter(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                           `{}`,
		`{ }`:                          `{ }`,
		`{"x1":1}`:                     `{}`,
		`{ "x1" : 1 }`:                 `{  }`,
		`{"x1":1,"x2":2}`:              `{}`,
		`{"x1":1,"a":2}`:               `{"a":2}`,
		`{"a":1,"x2":2}`:               `{"a":1}`,
		`{"a":1,"x2":2,"x3":3}`:        `{"a":1}`,
		`{"x1":1,"x2":2,"b":3}`:        `{"b":3}`,
		`{"a":1,"x2":2,"b":3}`:         `{"a":1,"b":3}`,
		`{"x1":1,"a":2,"x3":3}`:        `{"a":2}`,
		`{"a":1,"x":2,"b":3,"x":4}`:    `{"a":1,"b":3}`,
		`{ "a" : 1 , "x" : 2 , "b":3}`: `{ "a" : 1 , "b":3}`,
		`{"a":"x,\"}","x":["}",{"a":"\\"}],"b":[{}],"\u0078":1}`: `{"a":"x,\"}","b":[{}]}`,
		`{"a":{"x":1,"b":2},"x":{"x":3},"c":{"x":4}}`:            `{"a":{"b":2},"c":{}}`,
		`{"x":{"x":3},"c":{"d":4,"x":5}}`:                        `{"c":{"d":4}}`,
	} {
		var edits Edits
		edits.Filter([]byte(text), Span{0, len(text)}, func(m Member) bool {
			if strings.HasPrefix(string(m.Name), "x") {
				return false
			}
			edits.Filter([]byte(text), m.Value, func(m Member) bool { return !strings.HasPrefix(string(m.Name), "x") })
			return true
		})
		if diff := cmp.Diff(want, string(edits.Edited([]byte(text)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestFilterElements(t *testing.T) {
	for text, want := range map[string]struct {
		left string
		kept int
	}{
		`[]`:            {`[]`, 0},
		`[0]`:           {`[]`, 0},
		`[0,1]`:         {`[1]`, 1},
		`[1,0]`:         {`[1]`, 1},
		`[0,1, 0 ,2,0]`: {`[1 ,2]`, 2},
	} {
		var edits Edits
		kept := edits.Filter([]byte(text), Span{0, len(text)}, func(m Member) bool { return text[m.Value.Start] != '0' })
		if got := string(edits.Edited([]byte(text))); got != want.left || kept != want.kept {
			t.Errorf("%s: got %s with %d elements, want %s with %d", text, got, kept, want.left, want.kept)
		}
	}
}

func TestTake(t *testing.T) {
	for text, want := range map[string]struct {
		left  string // "" is refused
		taken []string
	}{
		`{}`:                              {`{}`, []string{"", ""}},
		`{"a":1}`:                         {`{}`, []string{"1", ""}},
		`{ "a" : 1 }`:                     {`{  }`, []string{"1", ""}},
		`{"a":1,"b":2}`:                   {`{}`, []string{"1", "2"}},
		`{"b":1,"a":2,"c":3}`:             {`{"c":3}`, []string{"2", "1"}},
		`{"c":3,"a":1,"b":2}`:             {`{"c":3}`, []string{"1", "2"}},
		`{"c":3 , "a":1 , "b":2 }`:        {`{"c":3 }`, []string{"1", "2"}},
		`{"a":1,"c":3,"b":2}`:             {`{"c":3}`, []string{"1", "2"}},
		`{"c":3,"a":1,"d":4,"b":2}`:       {`{"c":3,"d":4}`, []string{"1", "2"}},
		`{"c":3,"a":{"a":[]},"d":4}`:      {`{"c":3,"d":4}`, []string{`{"a":[]}`, ""}},
		`{"c":":","a":":","d":"a\":"}`:    {`{"c":":","d":"a\":"}`, []string{`":"`, ""}},
		`{"c":{"a":1},"\u0063":2,"c":[]}`: {`{"c":{"a":1},"\u0063":2,"c":[]}`, []string{"", ""}},
		`["a"]`:                           {`["a"]`, []string{"", ""}},
		`null`:                            {`null`, []string{"", ""}},
		`{"a":1,"a":2}`:                   {},
		`{"c":1,"A":2}`:                   {},
		`{"\u0061":2}`:                    {},
		`{"b":1,"a ":2}`:                  {},
	} {
		var edits Edits
		found, err := edits.Take([]byte(text), Span{0, len(text)}, "a", "b")
		if (err != nil) != (want.left == "") {
			t.Errorf("%s: %v", text, err)
		}
		if err != nil {
			continue
		}
		var taken []string
		for _, at := range found[:2] {
			taken = append(taken, text[at.Start:at.End])
		}
		if diff := cmp.Diff(want.taken, taken); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		if got := string(edits.Edited([]byte(text))); got != want.left {
			t.Errorf("%s: got %s, want %s", text, got, want.left)
		}
	}
}

func TestInsert(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                     `{"m":1,"n":2}`,
		`{ }`:                    `{"m":1,"n":2 }`,
		`{"a":1}`:                `{"m":1,"n":2,"a":1}`,
		`{ "a":1 }`:              `{"m":1,"n":2, "a":1 }`,
		`{"x":1}`:                `{"m":1,"n":2}`,
		"{ \"x\":1 , \"x\":2\n}": "{\"m\":1,\"n\":2 \n}",
		`{"x":1,"a":2}`:          `{"m":1,"n":2,"a":2}`,
		`{"a":2,"x":1}`:          `{"m":1,"n":2,"a":2}`,
		`{"a":{"x":1}}`:          `{"m":1,"n":2,"a":{"x":1}}`,
	} {
		var edits Edits
		edits.Filter([]byte(text), Span{0, len(text)}, func(m Member) bool { return string(m.Name) != "x" })
		edits.Insert([]byte(text), Span{0, len(text)}, []byte(`"m":1`))
		edits.Insert([]byte(text), Span{0, len(text)}, []byte(`"n":2`))
		if got := string(edits.Edited([]byte(text))); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// What is dropped from one object leaves others as they are.
func TestInsertBesideOtherEdits(t *testing.T) {
	const text = `{"x":1,"o":{"b":2},"x":3}`
	object := Span{strings.Index(text, `{"b"`), strings.Index(text, `,"x":3`)}
	var edits Edits
	edits.Filter([]byte(text), Span{0, len(text)}, func(m Member) bool { return string(m.Name) != "x" })
	edits.Insert([]byte(text), object, []byte(`"a":1`))
	if got, want := string(edits.Edited([]byte(text))), `{"o":{"a":1,"b":2}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A _meta joins the one that an object has, if that is an object.
func TestInsertMeta(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                      `{"_meta":{"n":1}}`,
		`{"a":2}`:                 `{"_meta":{"n":1},"a":2}`,
		`{"_meta":{}}`:            `{"_meta":{"n":1}}`,
		`{"a":2,"_meta":{"b":3}}`: `{"a":2,"_meta":{"n":1,"b":3}}`,
		`{"_meta":null,"a":2}`:    `{"_meta":{"n":1},"a":2}`,
	} {
		var edits Edits
		all := Whole([]byte(text))
		edits.InsertMeta([]byte(text), all, Lookup([]byte(text), all, "_meta"), []byte(`"_meta":{"n":1}`))
		if got := string(edits.Edited([]byte(text))); got != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
	}
}

// Edits still apply when there are more than it has room for, and can be undone.
func TestManyEdits(t *testing.T) {
	text := []byte(`[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19]`)
	var edits Edits
	for n := range 20 {
		edits.Replace(Whole(text), nil)
		edits.Truncate(n)
		edits.Replace(Span{1, 1}, []byte{'9'})
		if edits.Len() != n+1 {
			t.Fatalf("there are %d edits, want %d", edits.Len(), n+1)
		}
	}
	if got, want := string(edits.Edited(text)), "["+strings.Repeat("9", 20)+string(text[1:]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A text that is edited in place becomes what a copy becomes. It is overwritten only if
// that does no harm.
func TestEditedInPlace(t *testing.T) {
	const text = `{"a":1,"b":22,"c":333}`
	for name, test := range map[string]struct {
		edit    func(*Edits)
		inPlace bool
	}{
		"nothing": {func(*Edits) {}, true},
		"shorter": {func(e *Edits) {
			e.Filter([]byte(text), Whole([]byte(text)), func(m Member) bool { return string(m.Name) != "b" })
		}, true},
		"shorter, then longer": {func(e *Edits) {
			e.Replace(Span{18, 21}, []byte("55555"))
			e.Replace(Span{11, 13}, nil)
		}, true},
		"longer, then shorter": {func(e *Edits) {
			e.Replace(Span{18, 21}, nil)
			e.Replace(Span{5, 6}, []byte("11"))
		}, false},
	} {
		var edits Edits
		test.edit(&edits)
		own := []byte(text)
		want := string(edits.Edited(own))
		got := edits.EditedInPlace(own)
		if string(got) != want || (&got[0] == &own[0]) != test.inPlace {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestEditsAllocateOnlyTheCopy(t *testing.T) {
	text, insert := []byte(`{"a":1,"b":{"c":2},"d":3}`), []byte(`"e":4`)
	if objects := testing.AllocsPerRun(100, func() {
		var edits Edits
		_, _ = edits.Take(text, Whole(text), "a", "d")
		edits.Insert(text, Whole(text), insert)
		edits.Edited(text)
	}); objects > 1 {
		t.Errorf("they allocate %v objects", objects)
	}
}

// A range stands for the same value after the edits as before them.
func TestMoved(t *testing.T) {
	const text = `{"id":1,"result":{"x":1,"a":"b"},"n":2}`
	span := func(part string) Span {
		start := strings.Index(text, part)
		return Span{start, start + len(part)}
	}
	var edits Edits
	edits.Filter([]byte(text), span(`{"x":1,"a":"b"}`), func(m Member) bool { return string(m.Name) != "x" })
	edits.Insert([]byte(text), span(text), []byte(`"first":1`))
	edits.Replace(span(`"b"`), []byte(`"long"`))
	after := span(`2}`)
	edits.Replace(Span{after.Start + 1, after.Start + 1}, []byte(`,"last":3`))
	edited := edits.Edited([]byte(text))
	for part, want := range map[string]string{
		`1`:               `1`,
		`{"x":1,"a":"b"}`: `{"a":"long"}`,
		`"a"`:             `"a"`,
		`"b"`:             `"long"`,
		`2`:               `2`,
	} {
		if got := string(edits.Moved(span(part)).Of(edited)); got != want {
			t.Errorf("%s is at %s in %s, want %s", part, got, edited, want)
		}
	}
}

// FuzzEdits compares objects that were edited with the same changes to a map. Whatever is
// taken out or inserted, the rest is what it was.
func FuzzEdits(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{ }`, `{"a":1}`, `{"c":3 , "a":1 , "b":[ ] }`, `{"b":{},"a":"\"a\":","x":"a"}`, `{"x":{"a":1,"c":{}},"xx":{},"a":{"x":1}}`,
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, text string, insert bool) {
		message := []byte(`{"jsonrpc":"2.0","method":"m","params":` + text + `,"z":0}`)
		e, err := Scan(message)
		var want map[string]json.RawMessage
		if err != nil || !e.Params.IsObject(message) || json.Unmarshal(e.Params.Of(message), &want) != nil {
			return
		}
		var edits Edits
		found, err := edits.Take(message, e.Params, "a", "b")
		if err != nil {
			return
		}
		for i, name := range []string{"a", "b"} {
			if string(found[i].Of(message)) != string(want[name]) {
				t.Errorf("took %q from %s, want %q", found[i].Of(message), message, want[name])
			}
			delete(want, name)
		}
		if insert {
			edits.Insert(message, e.Params, []byte(`"a":[],"b":null`))
			edits.Insert(message, Whole(message), []byte(`"first":{}`))
			want["a"], want["b"] = json.RawMessage(`[]`), json.RawMessage(`null`)
		}
		edited := edits.Edited(message)
		at := edits.Moved(e.Params)
		if inPlace := edits.EditedInPlace(message); string(inPlace) != string(edited) {
			t.Fatalf("in place it becomes %s, else %s", inPlace, edited)
		}
		if e, err = Scan(edited); err != nil || e.Params != at {
			t.Fatalf("%s became %s, with params at %v and not %v: %v", message, edited, at, e.Params, err)
		}
		var got map[string]json.RawMessage
		if err := json.Unmarshal(e.Params.Of(edited), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s became %s (-want +got):\n%s", message, edited, diff)
		}
	})
}
