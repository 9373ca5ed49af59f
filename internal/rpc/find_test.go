package rpc

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFind(t *testing.T) {
	for name, test := range map[string]struct {
		object string
		want   []string // nil is refused
	}{
		"all, in any order": {`{"b":[1,{"a":2}],"a":"x"}`, []string{`"x"`, `[1,{"a":2}]`}},
		"one":               {`{"c":{"a":1},"b":null}`, []string{"", "null"}},
		"none":              {`{}`, []string{"", ""}},
		"not an object":     {`[{"a":1}]`, []string{"", ""}},
		"twice":             {`{"a":1,"a":2}`, nil},
		"another case":      {`{"A":1}`, nil},
		"an escape":         {`{"\u0061":1}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			const before = `{"jsonrpc":"2.0","id":1,"result":`
			message := []byte(before + test.object + `}`)
			envelope, err := Scan(message)
			if err != nil {
				t.Fatal(err)
			}
			found, err := Find(message, envelope.Result, "a", "b")
			if err != nil {
				if test.want != nil || found != (Found{}) {
					t.Errorf("found %v, %v", found, err)
				}
				return
			}
			var got []string
			for _, span := range found[:2] {
				got = append(got, string(span.Of(message)))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFindAllocatesNothing(t *testing.T) {
	message := []byte(`{"a":1,"b":[],"c":{}}`)
	if objects := testing.AllocsPerRun(100, func() { _, _ = Find(message, Whole(message), "c", "a") }); objects > 0 {
		t.Errorf("it allocates %v objects", objects)
	}
}

func TestFindNowhere(t *testing.T) {
	if found, err := Find([]byte(`{}`), Span{}, "a"); err != nil || found[0].Present() {
		t.Errorf("found %v, %v", found, err)
	}
}

func TestText(t *testing.T) {
	for value, want := range map[string]string{`"a"`: "a", `"a\/b"`: "a/b", `1`: "", `""`: ""} {
		if got := Text([]byte(value), Span{0, len(value)}); string(got) != want {
			t.Errorf("%s is %q, want %q", value, got, want)
		}
	}
	if got := Text([]byte(`"a"`), Span{}); got != nil {
		t.Errorf("nothing is %q", got)
	}
}

func TestEdited(t *testing.T) {
	message := []byte(`{"id":1,"token":2}`)
	got := Edited(message, Edit{Span{16, 17}, []byte("22")}, Edit{Span{6, 7}, []byte(`"x"`)})
	if want := `{"id":"x","token":22}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
