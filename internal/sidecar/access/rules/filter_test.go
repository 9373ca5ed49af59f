package rules

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
)

func scanAnswer(tb testing.TB, text string) ([]byte, *rpc.Envelope) {
	tb.Helper()
	answer := []byte(text)
	e, err := rpc.ScanLenient(answer)
	if err != nil {
		tb.Fatalf("scan %.1000s: %v", text, err)
	}
	return answer, &e
}

func filter(tb testing.TB, r *Rights, method, text string) string {
	tb.Helper()
	answer, e := scanAnswer(tb, text)
	return string(r.Filter(method, answer, e))
}

func filterAny(tb testing.TB, r *Rights, text string) string {
	tb.Helper()
	answer, e := scanAnswer(tb, text)
	return string(r.FilterAny(answer, e))
}

func result(members string) string { return `{"jsonrpc":"2.0","id":"q\"7","result":{` + members + `}}` }

// What Ann sees: bytes of what stays, the order and everything else stay.
func TestFilter(t *testing.T) {
	const (
		tools     = methodListTools
		prompts   = methodListPrompts
		resources = methodListResources
		templates = methodListTemplates
	)
	tests := map[string]struct{ method, answer, want string }{
		"all stay":                 {tools, `"tools":[{"name":"search"}]`, `"tools":[{"name":"search"}]`},
		"none":                     {tools, `"tools":[]`, `"tools":[]`},
		"none stays":               {tools, `"tools":[{"name":"x"},{"name":"y"}]`, `"tools":[]`},
		"page of none":             {tools, `"tools":[{"name":"x"}],"nextCursor":"c"`, `"tools":[],"nextCursor":"c"`},
		"first goes":               {tools, `"tools":[{"name":"x"}, {"name":"search"}]`, `"tools":[{"name":"search"}]`},
		"last goes":                {tools, `"tools":[{"name":"search"}, {"name":"x"}]`, `"tools":[{"name":"search"}]`},
		"order and bytes":          {tools, `"a":1, "tools" : [ {"title":"T","name":"list_b" , "inputSchema":{"name":"x"}} , {"name":"x"}, {"name":"search","name2":2} ] , "nextCursor":"ü","z":[]`, `"a":1, "tools" : [ {"title":"T","name":"list_b" , "inputSchema":{"name":"x"}}, {"name":"search","name2":2} ] , "nextCursor":"ü","z":[]`},
		"hidden":                   {tools, `"tools":[{"name":"list_a"},{"name":"list_secrets"},{"name":"admin_x"}]`, `"tools":[{"name":"list_a"}]`},
		"lacks scope only":         {tools, `"tools":[{"name":"write"},{"name":"triage"}]`, `"tools":[{"name":"write"}]`},
		"escaped":                  {tools, `"tools":[{"name":"se\u0061rch"},{"name":"\u0078"}]`, `"tools":[{"name":"se\u0061rch"}]`},
		"NUL in a name":            {tools, `"tools":[{"name":"search\u0000"},{"name":"search"}]`, `"tools":[{"name":"search"}]`},
		"nested lists are no list": {tools, `"x":{"tools":[{"name":"x"}]},"tools":[{"name":"x","tools":[{"name":"search"}]}]`, `"x":{"tools":[{"name":"x"}]},"tools":[]`},
		"prompts":                  {prompts, `"prompts":[{"name":"greet"},{"name":"search"},{"name":"tour"}]`, `"prompts":[{"name":"greet"},{"name":"tour"}]`},
		"resources":                {resources, `"resources":[{"name":"docs://index","uri":"x:y"},{"uri":"docs://index"},{"uri":"docs://handbook/a"},{"uri":"docs://handbook/../b"},{"uri":"docs://indexes"}]`, `"resources":[{"uri":"docs://index"},{"uri":"docs://handbook/a"}]`},
		"templates":                {templates, `"resourceTemplates":[{"uriTemplate":"docs://{a}"},{"uriTemplate":"docs://handbook/{a}"},{"uriTemplate":"docs://index{?a}"},{"uriTemplate":"docs://index"},{"uriTemplate":"docs://handbook/{a}/../b"},{"uriTemplate":"docs://handbook{/a}"}]`, `"resourceTemplates":[{"uriTemplate":"docs://handbook/{a}"},{"uriTemplate":"docs://index"}]`},
	}
	rights := compile(t, office).For(ann())
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got, want := filter(t, rights, test.method, result(test.answer)), result(test.want); got != want {
				t.Errorf("Filter:\n got %s\nwant %s", got, want)
			}
			if got, want := filterAny(t, rights, result(test.answer)), result(test.want); got != want {
				t.Errorf("FilterAny:\n got %s\nwant %s", got, want)
			}
		})
	}
}

// No cache gives a filtered list to another caller, on no page, also if nothing was taken out.
func TestFilterKeepsListsPrivate(t *testing.T) {
	const list = `"tools":[{"name":"search"}]`
	tests := map[string]struct{ answer, want string }{
		"a revision without caches": {list, list},
		"public":                    {`"resultType":"complete",` + list + `,"ttlMs":1000,"cacheScope":"public"`, `"resultType":"complete",` + list + `,"ttlMs":1000,"cacheScope":"private"`},
		"private already":           {`"ttlMs":0,"cacheScope":"private","resultType":"complete",` + list, `"ttlMs":0,"cacheScope":"private","resultType":"complete",` + list},
		"too long":                  {`"ttlMs":60001,"cacheScope":"private",` + list, `"ttlMs":60000,"cacheScope":"private",` + list},
		"just so":                   {`"ttlMs":60000,"cacheScope":"private",` + list, `"ttlMs":60000,"cacheScope":"private",` + list},
		"much too long":             {`"ttlMs":1e999,"cacheScope":"private",` + list, `"ttlMs":60000,"cacheScope":"private",` + list},
		"an exponent":               {`"ttlMs":6e7,"cacheScope":"private",` + list, `"ttlMs":60000,"cacheScope":"private",` + list},
		"negative":                  {`"ttlMs":-1,"cacheScope":"private",` + list, `"ttlMs":0,"cacheScope":"private",` + list},
		"no number":                 {`"ttlMs":"99999999","cacheScope":"private",` + list, `"ttlMs":0,"cacheScope":"private",` + list},
		"null":                      {`"ttlMs":null,"cacheScope":null,` + list, `"ttlMs":0,"cacheScope":"private",` + list},
		"none":                      {`"resultType":"complete",` + list, `"cacheScope":"private","ttlMs":0,"resultType":"complete",` + list},
		"only scope":                {`"cacheScope":"public",` + list, `"ttlMs":0,"cacheScope":"private",` + list},
		"only ttlMs":                {`"ttlMs":5,` + list, `"cacheScope":"private","ttlMs":5,` + list},
		"and entries go":            {`"resultType":"complete","tools":[{"name":"x"},{"name":"search"}],"nextCursor":"c"`, `"cacheScope":"private","ttlMs":0,"resultType":"complete",` + list + `,"nextCursor":"c"`},
		"and all go":                {`"tools":[{"name":"x"}],"ttlMs":1e5`, `"cacheScope":"private","tools":[],"ttlMs":60000`},
	}
	rights := compile(t, office).For(ann())
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got, want := filter(t, rights, methodListTools, result(test.answer)), result(test.want); got != want {
				t.Errorf("Filter:\n got %s\nwant %s", got, want)
			}
			if got, want := filterAny(t, rights, result(test.answer)), result(test.want); got != want {
				t.Errorf("FilterAny:\n got %s\nwant %s", got, want)
			}
		})
	}
}

// A list that a caller sees in full is private, too, because others see less of it. The filter
// does not read its entries, so odd ones pass.
func TestFullListsAreKeptPrivate(t *testing.T) {
	const odd = `"tools":[{},null,{"name":"a","name":"b"},{"name":"secret"}],"prompts":7`
	tests := map[string]struct{ answer, want string }{
		"a revision without caches": {odd, odd},
		"public":                    {`"resultType":"complete",` + odd + `,"ttlMs":3600000,"cacheScope":"public"`, `"resultType":"complete",` + odd + `,"ttlMs":60000,"cacheScope":"private"`},
		"private already":           {`"ttlMs":5,"cacheScope":"private",` + odd, `"ttlMs":5,"cacheScope":"private",` + odd},
		"nothing said":              {`"resultType":"complete",` + odd, `"cacheScope":"private","ttlMs":0,"resultType":"complete",` + odd},
		"no list":                   {`"resultType":"input_required","cacheScope":"public"`, `"ttlMs":0,"resultType":"input_required","cacheScope":"private"`},
		"list twice":                {`"tools":[],"tools":[],"ttlMs":1,"cacheScope":"public"`, `"tools":[],"tools":[],"ttlMs":1,"cacheScope":"private"`},
	}
	policy := compile(t, onlyAdmins)
	root, ann := policy.For(token("corp:root")), policy.For(token("corp:ann"))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, l := range listings {
				if got, want := filter(t, root, l.method, result(test.answer)), result(test.want); got != want {
					t.Errorf("%s of root:\n got %s\nwant %s", l.method, got, want)
				}
			}
			if got, want := filter(t, ann, methodListPrompts, result(test.answer)), result(test.want); got != want {
				t.Errorf("prompts of ann:\n got %s\nwant %s", got, want)
			}
		})
	}
	for name, answer := range map[string]string{
		"no object": `{"jsonrpc":"2.0","id":1,"result":[{"name":"x"}]}`,
		"an error":  `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`,
	} {
		if got := filter(t, root, methodListTools, answer); got != answer {
			t.Errorf("%s becomes %s", name, got)
		}
	}
	// One cache could read private here, and the next one public.
	wantRefusal(t, filter(t, root, methodListTools, result(`"cacheScope":"private","cacheScope":"public","tools":[]`)))
	if root.FiltersAny() {
		t.Error("answers to requests that the adapter does not know are filtered")
	}
	public := result(`"tools":[],"cacheScope":"public"`)
	for _, mode := range []adapterapi.AccessMode{adapterapi.AccessNone, adapterapi.AccessOfServer} {
		if got := filter(t, compile(t, adapterapi.Access{Mode: mode}).For(nil), methodListTools, public); got != public {
			t.Errorf("with mode %s, where all see the same, the list becomes %s", mode, got)
		}
	}
	if got := filter(t, Probe(), methodListTools, public); got != public {
		t.Errorf("the probe gets %s", got)
	}
}

// bypasses are results that some client reads otherwise than the filter would, or that the filter cannot
// read. None of it may reach a caller who sees only a part. Section 11 of the design has the stories.
var bypasses = map[string]string{
	"list twice":               `"tools":[{"name":"search"}],"tools":[{"name":"x"}]`,
	"list in other case":       `"tools":[{"name":"search"}],"Tools":[{"name":"x"}]`,
	"list in other case only":  `"TOOLS":[{"name":"x"}]`,
	"list escaped":             `"tools":[],"to\u006fls":[{"name":"x"}]`,
	"list escaped only":        `"to\u006fls":[{"name":"x"}]`,
	"list with NUL":            `"tools":[],"tools\u0000":[{"name":"x"}]`,
	"list with NUL only":       `"tools\u0000":[{"name":"x"}]`,
	"list with a blank":        `"tools":[]," tools":[{"name":"x"}]`,
	"list with a BOM":          `"tools":[],"\ufefftools":[{"name":"x"}]`,
	"list with a long s":       `"tools":[],"toolſ":[{"name":"x"}]`,
	"list an object":           `"tools":{"name":"x"}`,
	"list a string":            `"tools":"x"`,
	"list null":                `"tools":null`,
	"entry a string":           `"tools":["x"]`,
	"entry null":               `"tools":[null]`,
	"entry a list":             `"tools":[[{"name":"x"}]]`,
	"entry a list, behind one": `"tools":[{"name":"search"},[{"name":"x"}]]`,
	"entry without name":       `"tools":[{"name":"search"},{"title":"x"}]`,
	"entry empty":              `"tools":[{}]`,
	"two names":                `"tools":[{"name":"search","name":"x"}]`,
	"two names, reversed":      `"tools":[{"name":"x","name":"search"}]`,
	"names in two cases":       `"tools":[{"name":"search","Name":"x"}]`,
	"name escaped":             `"tools":[{"name":"search","n\u0061me":"x"}]`,
	"name escaped only":        `"tools":[{"n\u0061me":"search"}]`,
	"name with NUL":            `"tools":[{"name":"search","name\u0000":"x"}]`,
	"name with a zero width":   "\"tools\":[{\"name\":\"search\",\"name\u200b\":\"x\"}]",
	"name a number":            `"tools":[{"name":1}]`,
	"name null":                `"tools":[{"name":null}]`,
	"name a list":              `"tools":[{"name":["search"]}]`,
	"name an object":           `"tools":[{"name":{"name":"search"}}]`,
	"half a character":         `"tools":[{"name":"list_\ud800"}]`,
	"other half":               `"tools":[{"name":"list_\udc00a"}]`,
	"long and escaped":         `"tools":[{"name":"list_\n` + strings.Repeat("a", escapedBytes) + `"}]`,
	"long and escaped member":  `"tools":[{"name":"search","\n` + strings.Repeat("a", escapedBytes) + `":1}]`,
	"not complete":             `"resultType":"input_required","tools":[{"name":"search"}]`,
	"resultType twice":         `"resultType":"complete","ResultType":"task","tools":[{"name":"search"}]`,
	"cacheScope twice":         `"cacheScope":"private","cacheScope":"public","tools":[{"name":"search"}]`,
	"cacheScope in other case": `"CacheScope":"public","tools":[{"name":"search"}]`,
	"ttlMs twice":              `"ttlMs":1,"ttlms":99999999,"tools":[{"name":"search"}]`,
}

func TestFilterBypasses(t *testing.T) {
	rights := compile(t, office).For(ann())
	for name, members := range bypasses {
		t.Run(name, func(t *testing.T) {
			wantRefusal(t, filter(t, rights, methodListTools, result(members)))
			wantRefusal(t, filterAny(t, rights, result(members)))
		})
	}
	for name, answer := range map[string]string{
		"no list":           result(``),
		"another list":      result(`"prompts":[{"name":"greet"}]`),
		"list further down": result(`"result":{"tools":[{"name":"search"}]}`),
		"asks for input":    result(`"resultType":"input_required","inputRequests":{}`),
		"result a list":     `{"jsonrpc":"2.0","id":"q\"7","result":[{"name":"x"}]}`,
		"result null":       `{"jsonrpc":"2.0","id":"q\"7","result":null}`,
		"result a string":   `{"jsonrpc":"2.0","id":"q\"7","result":"x"}`,
		"no answer":         `{"jsonrpc":"2.0","id":"q\"7","method":"x","params":{"tools":[{"name":"x"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			wantRefusal(t, filter(t, rights, methodListTools, answer))
		})
	}
}

func wantRefusal(t *testing.T, got string) {
	t.Helper()
	var refused struct {
		ID     string             `json:"id"`
		Error  struct{ Code int } `json:"error"`
		Result json.RawMessage    `json:"result"`
	}
	if err := json.Unmarshal([]byte(got), &refused); err != nil {
		t.Fatalf("%.1000s: %v", got, err)
	}
	if refused.Error.Code != rpc.CodeInternal || refused.ID != `q"7` || refused.Result != nil || len(got) > 1000 {
		t.Errorf("passed on: %.1000s", got)
	}
}

// Errors pass. So does a result without a list, if the request is unknown.
func TestFilterPasses(t *testing.T) {
	rights := compile(t, office).For(ann())
	const failure = `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"tools","data":{"tools":[{"name":"x"}]}}}`
	if got := filter(t, rights, methodListTools, failure); got != failure {
		t.Errorf("an error becomes %s", got)
	}
	for name, answer := range map[string]string{
		"error":         failure,
		"lenient error": `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""},"result":null}`,
		"of a call":     result(`"content":[{"type":"text","text":"{\"tools\":[]}"}],"structuredContent":{"tools":[{"name":"x"}]}`),
		"of initialize": result(`"capabilities":{"tools":{},"prompts":{}},"serverInfo":{"name":"x"}`),
		"empty":         result(``),
		"string":        `{"jsonrpc":"2.0","id":1,"result":"tools"}`,
		"null":          `{"jsonrpc":"2.0","id":1,"result":null}`,
		"public":        result(`"contents":[],"cacheScope":"public"`),
	} {
		t.Run(name, func(t *testing.T) {
			if got := filterAny(t, rights, answer); got != answer {
				t.Errorf("becomes %s", got)
			}
		})
	}
	both := filterAny(t, rights, result(`"tools":[{"name":"x"}],"prompts":[{"name":"greet"},{"name":"x"}],"ttlMs":99999`))
	if want := result(`"cacheScope":"private","tools":[],"prompts":[{"name":"greet"}],"ttlMs":60000`); both != want {
		t.Errorf("two lists:\n got %s\nwant %s", both, want)
	}
}

// Lists of which a caller sees everything pass, whatever their entries look like.
func TestFilters(t *testing.T) {
	policy := compile(t, office)
	tests := map[string]struct {
		rights *Rights
		want   string // the lists that are filtered: tools, prompts, resources, templates
	}{
		"everything":   {nil, "----"},
		"ann":          {policy.For(ann()), "tprT"},
		"root":         {policy.For(token("corp:root", "mcp:use")), "t---"},
		"stepper":      {policy.For(token("corp:stepper", "mcp:use")), "t---"},
		"reader":       {policy.For(with(token("corp:rita", "mcp:use"), names{"corp:readers"}, "")), "tp--"},
		"blocked":      {policy.For(token("corp:mallory", "mcp:use")), "tprT"},
		"no caller":    {policy.For(nil), "tprT"},
		"only account": {policy.For(serviceAccount("triage")), "tprT"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for i, l := range listings {
				if got, want := test.rights.Filters([]byte(l.method)), test.rights != nil; got != want {
					t.Errorf("%s: got %v, want %v", l.method, got, want)
				}
				want := test.want[i] != '-'
				odd := result(`"` + l.member + `":[{}]`)
				if filtered := filter(t, test.rights, l.method, odd) != odd; filtered != want {
					t.Errorf("Filter of %s: got %v, want %v", l.method, filtered, want)
				}
				if filtered := filterAny(t, test.rights, odd) != odd; filtered != want {
					t.Errorf("FilterAny of %s: got %v, want %v", l.method, filtered, want)
				}
			}
			for _, method := range []string{"tools/call", "Tools/list", "tools/list ", ""} {
				if test.rights.Filters([]byte(method)) {
					t.Errorf("%q is filtered", method)
				}
			}
		})
	}
	if got := filter(t, policy.For(token("corp:mallory", "mcp:use")), methodListTools, result(`"tools":[{"name":"search"}]`)); got != result(`"tools":[]`) {
		t.Errorf("a blocked caller sees %s", got)
	}
}

// A hostile server cannot make a filter slow: neither by many entries, nor by blanks before them, nor by
// depth.
func TestFilterHuge(t *testing.T) {
	var entries strings.Builder
	for i := range 50_000 {
		if i > 0 {
			entries.WriteByte(',')
		}
		name := "x"
		if i%2 == 0 {
			name = "search"
		}
		fmt.Fprintf(&entries, `{"name":%q}`, name)
	}
	const depth = 900
	tests := map[string]string{
		"entries": `"resultType":"complete","tools":[` + entries.String() + `]`,
		"blanks":  strings.Repeat(" ", 4<<20) + `"resultType":"complete","tools":[` + entries.String() + `]`,
		"deep":    `"tools":[{"name":"search","x":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `},{"name":"x"}]`,
		"members": `"tools":[{"name":"search"` + strings.Repeat(`,"\u0061":0`, 50_000) + `},{"name":"x"}]`,
	}
	rights := compile(t, office).For(ann())
	for name, members := range tests {
		t.Run(name, func(t *testing.T) {
			answer, e := scanAnswer(t, result(members))
			began := time.Now()
			got := rights.Filter(methodListTools, answer, e)
			// It takes less than 0.1 s. What grows with the square takes minutes.
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("took %v", took)
			}
			if !json.Valid(got) || strings.Contains(string(got), `"name":"x"`) || !strings.Contains(string(got), `"name":"search"`) {
				t.Errorf("got %.1000s", got)
			}
		})
	}
}
