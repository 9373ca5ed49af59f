package report

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		"many of one beginning":       {values: []string{"secret", "secret-a", "secret-az", "secret-b", "secret-azz"}, text: "secret-ay secret-c secret-azz", want: "<removed, 8 bytes>y <removed, 6 bytes>-c <removed, 10 bytes>"},
		"one of many that was cut":    {values: []string{"s3cret-1", "s3cret-1234", "s3cret-12…x", "s3cret-2"}, text: "token s3cret-123… s3cret-12…", want: "token <removed, 10 bytes>… <removed, 9 bytes>…"},
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
		"a flag in a variable":        {values: []string{"--token=s3cret-1"}, text: "got s3cret-1", want: "got <removed, 8 bytes>"},
		"a variable of a shell":       {words: []string{"export TOKEN=s3cr3t-abcdef; exec node x"}, text: "export: got s3cr3t-abcdef", want: "export: got <removed, 13 bytes>"},
		"a quoted variable":           {words: []string{`TOKEN='two words' exec node x`}, text: "got two words", want: "got <removed, 9 bytes>"},
		"a word for a shell":          {words: []string{"login s3cret-1|cat"}, text: "got s3cret-1", want: "got <removed, 8 bytes>"},
		"a password for a shell":      {words: []string{"mysql -ps3cret-1 x"}, text: "got s3cret-1 of -ps3cret-1", want: "got <removed, 8 bytes> of <removed, 10 bytes>"},
		"settings in a flag":          {words: []string{"--dsn=host=db password=hunter2secret"}, text: "got hunter2secret", want: "got <removed, 13 bytes>"},
		"settings":                    {values: []string{"user: me, password: hunter2secret"}, text: "got hunter2secret", want: "got <removed, 13 bytes>"},
		"settings in brackets":        {values: []string{"x {user: me, password: hunter2secret}"}, text: "got hunter2secret", want: "got <removed, 13 bytes>"},
		"a list":                      {values: []string{"s3cret-1,s3cret-2;s3cret-3"}, text: "s3cret-1 s3cret-2 s3cret-3", want: "<removed, 8 bytes> <removed, 8 bytes> <removed, 8 bytes>"},
		"a query":                     {values: []string{"https://x.example/?a=b&api_key=KEYKEYKEY&c=d"}, text: "key KEYKEYKEY", want: "key <removed, 9 bytes>"},
		"an escaped query":            {values: []string{"https://x.example/?key=KEY%2fKEY+%C3%B6,x"}, text: "key KEY/KEY ö,x or KEY%2fKEY+%C3%B6", want: "key <removed, 12 bytes> or <removed, 16 bytes>"},
		"the user of a URL":           {words: []string{"--url=https://ghp_s3cret@x.example/y"}, text: "as ghp_s3cret", want: "as <removed, 10 bytes>"},
		"a password before a host":    {values: []string{"me:s3cret@1@tcp(db:3306)/x"}, text: "as s3cret@1", want: "as <removed, 8 bytes>"},
		"a number in JSON":            {values: []string{`{"pin":12345678,"deep":[[{"pin":123456.50}]]}`}, text: "pin 12345678 123456.50", want: "pin <removed, 8 bytes> <removed, 9 bytes>"},
		"JSON in JSON":                {values: []string{`{"a":"{\"b\":\"Bearer s3cret-1\",\"c\":12345678}"}`}, text: "s3cret-1 12345678", want: "<removed, 8 bytes> <removed, 8 bytes>"},
		"JSON in a flag":              {words: []string{`--config={"pin":12345678,"a":"s3cret-1"}`}, text: "s3cret-1 12345678", want: "<removed, 8 bytes> <removed, 8 bytes>"},
		"an ordinary word":            {values: []string{"production"}, words: []string{"--transport", "/usr/bin/node", "python3", "streamable-http"}, text: "production --transport /usr/bin/node python3 streamable-http", want: "<removed, 10 bytes> --transport /usr/bin/node python3 streamable-http"},
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

// A log can be read although all of a server's commands and variables are known.
func TestRemoveKeepsLogsReadable(t *testing.T) {
	values := NewValues()
	values.Learn(object{
		"kind": "MCPServer", "metadata": object{"name": "tickets", "namespace": "support"},
		"spec": object{
			"image":   "registry.example/team/tickets-server:v1.20.3@sha256:0123",
			"command": []any{"/bin/sh", "-c"},
			"args": []any{`set -euo pipefail; export TOKEN=s3cr3t-abcdef NODE_ENV=production; exec /usr/local/bin/node /app/dist/server.js ` +
				`--transport streamable-http --log-level=warning --name tickets --image tickets-server:v1.20.3 --key "k3y of it" >/dev/null`},
			"env": []any{
				object{"name": "DEBUG", "value": "false"}, object{"name": "TRANSPORT", "value": "stdio"},
				object{"name": "DATABASE", "value": "postgres://me:hunter2secret@db.example:5432/tickets?sslmode=require"},
				object{"name": "OPTIONS", "value": `{"retries":3,"mode":"default","host":"0.0.0.0","pin":12345678}`},
			},
		},
	})
	const log = `2026-11-17T20:18:16Z INFO tickets-server v1.20.3 of team support starts in production: /usr/local/bin/node /app/dist/server.js --transport streamable-http
2026-11-17T20:18:16Z WARN warning: debug=false host=0.0.0.0 mode=default sslmode=require, export TOKEN=s3cr3t-abcdef is deprecated, use --key
2026-11-17T20:18:17Z ERROR password "hunter2secret" of "me" rejected by db.example, pin 12345678, key k3y of it
    at connect (/app/dist/server.js:10:3)
{"level":"info","server":"tickets","sessions":3,"url":"http://127.0.0.1:8080/mcp"}
`
	want := strings.NewReplacer("TOKEN=s3cr3t-abcdef", "<removed, 19 bytes>", "hunter2secret", "<removed, 13 bytes>", "12345678", "<removed, 8 bytes>", "k3y of it", "<removed, 9 bytes>").Replace(log)
	if diff := cmp.Diff(want, values.Remove(log)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The parts of a value take no more than a bounded multiple of its size, whatever it looks like.
func TestPartsAreBounded(t *testing.T) {
	const size = 1 << 20
	for name, unit := range map[string]string{"signs": "=", "settings": "a=", "quotes": `="`, "brackets": "[", "URLs": "a://", "escapes": `\"`, "hosts": ":@", "lines": "key=value\n"} {
		t.Run(name, func(t *testing.T) {
			for _, value := range []string{strings.Repeat(unit, size/len(unit)), `{"a":"` + strings.Repeat(unit, size/len(unit)) + `"}`} {
				total := 0
				for _, part := range parts(value) {
					total += len(part)
				}
				if total > 64*size {
					t.Errorf("%d bytes of parts", total)
				}
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
