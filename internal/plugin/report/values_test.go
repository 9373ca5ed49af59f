package report

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestRemove(t *testing.T) {
	for name, test := range map[string]struct {
		values []string
		words  []string
		text   string
		want   string
	}{
		"a value":                     {values: []string{"s3cret-1"}, text: "token s3cret-1, again s3cret-1", want: "token <removed, 8 bytes>, again <removed, 8 bytes>"},
		"a short value":               {values: []string{"short"}, text: "short", want: "short"},
		"the shortest value":          {values: []string{"sixsix"}, text: "sixsix", want: "<removed, 6 bytes>"},
		"nothing known":               {text: "token s3cret-1", want: "token s3cret-1"},
		"the longest of two":          {values: []string{"secret", "secret-longer"}, text: "secret-longer secret-", want: "<removed, 13 bytes> <removed, 6 bytes>-"},
		"values that overlap":         {values: []string{"abcdef", "defghijkl"}, text: "xabcdefghijkly", want: "x<removed, 12 bytes>y"},
		"a value in itself":           {values: []string{"aaaaaa"}, text: "aaaaaaaaaa", want: "<removed, 10 bytes>"},
		"what looks like a marker":    {values: []string{"removed"}, text: "<removed, 7 bytes>", want: "<<removed, 7 bytes>, 7 bytes>"},
		"a value that was cut":        {values: []string{"s3cret-1234"}, text: "token s3cret-1… more", want: "token <removed, 8 bytes>… more"},
		"a line of a value":           {values: []string{"first line\nsecond line\n"}, text: "[3] second line", want: "[3] <removed, 11 bytes>"},
		"lines in a message":          {values: []string{"a1b2\nc3d4"}, text: "it says a1b2 c3d4", want: "it says <removed, 9 bytes>"},
		"a value with white space":    {values: []string{"s3cret-1\n"}, text: "token=s3cret-1;", want: "token=<removed, 8 bytes>;"},
		"the password of a URL":       {values: []string{"postgres://me:s3cret-1@db/x"}, text: "password s3cret-1", want: "password <removed, 8 bytes>"},
		"a bearer token":              {values: []string{"Bearer s3cret-1"}, text: "got s3cret-1", want: "got <removed, 8 bytes>"},
		"a value with $":              {values: []string{"s3cret$$1"}, text: "got s3cret$1 of s3cret$$1", want: "got <removed, 8 bytes> of <removed, 9 bytes>"},
		"a text in JSON":              {values: []string{`{"a":[{"b":"s3cret-1"}],"c":1}`}, text: "got s3cret-1", want: "got <removed, 8 bytes>"},
		"the value of a flag":         {words: []string{"--token=s3cret-1"}, text: "got s3cret-1", want: "got <removed, 8 bytes>"},
		"the value of a header":       {words: []string{"X-Key: s3cret-1"}, text: "got s3cret-1", want: "got <removed, 8 bytes>"},
		"a value, not a flag's":       {values: []string{"--token=s3cret-1"}, text: "got s3cret-1", want: "got s3cret-1"},
		"bytes that are no character": {values: []string{"\xff\xfe\xfd\xfc\xfb\xfa"}, text: "x\xff\xfe\xfd\xfc\xfb\xfay", want: "x<removed, 6 bytes>y"},
	} {
		t.Run(name, func(t *testing.T) {
			values := NewValues()
			for _, value := range test.values {
				values.Add(value)
			}
			for _, word := range test.words {
				values.AddWord(word)
			}
			if got := values.Remove(test.text); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A program may write a value in an encoding.
func TestRemoveEncodings(t *testing.T) {
	const value = "p\"a<s>s\\w ö/+r?d"
	values := NewValues()
	values.Add(value)
	inJSON, err := json.Marshal(map[string]string{"a": value})
	if err != nil {
		t.Fatal(err)
	}
	twice, err := json.Marshal(`{"a":"p\"a<s>s\\w ö/+r?d"}`)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"JSON": string(inJSON), "JSON without escapes of HTML": `{"a":"p\"a<s>s\\w ö/+r?d"}`, "JSON in JSON": strings.ReplaceAll(strings.ReplaceAll(string(twice), `\u003c`, "<"), `\u003e`, ">"),
		"Go": strconv.Quote(value), "Go in ASCII": strconv.QuoteToASCII(value), "a query": url.QueryEscape(value), "a path": url.PathEscape(value),
		"base64": base64.StdEncoding.EncodeToString([]byte(value)), "base64 of URLs": base64.URLEncoding.EncodeToString([]byte(value)),
	} {
		if got := values.Remove(text); !strings.Contains(got, "<removed, ") || strings.Contains(got, "w ") || strings.Contains(got, "r?d") {
			t.Errorf("%s: %q stays of %q", name, got, text)
		}
	}
}

var markers = regexp.MustCompile(`<removed, [0-9]+ bytes>`)

// Nothing that is known stays, whatever the values have in common.
func FuzzRemove(f *testing.F) {
	f.Add("abcdef", "defghijkl", "xabcdefghijkly")
	f.Add("aaaaaa", "aaaaaaaa", "aaaaaaaaaaaaaa")
	f.Add("s3cret-1234", "", "s3cret-1… s3cret-1234")
	f.Fuzz(func(t *testing.T, one, other, text string) {
		if strings.ContainsAny(one+other+text, "<>") {
			t.Skip("markers could not be told from the text")
		}
		values := NewValues()
		values.Add(one)
		values.AddWord(other)
		rest := values.Remove(text)
		for _, kept := range markers.Split(rest, -1) {
			for value := range values.known {
				if strings.Contains(kept, value) {
					t.Fatalf("%q stays in %q of %q", value, rest, text)
				}
			}
		}
	})
}
