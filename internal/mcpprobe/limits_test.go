package mcpprobe

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// ways runs a script behind HTTP, in JSON and as events, and as a process.
func ways(t *testing.T, s script) map[string]Target {
	t.Helper()
	streamed := script{}
	for method, answer := range s {
		streamed[method] = answer
		if method == methodTools {
			streamed[method] = func(c call) string { return "data: " + answer(c) + "\n\n" }
		}
	}
	return map[string]Target{
		"JSON":    HTTP(serve(t, s), nil),
		"events":  HTTP(serve(t, streamed.asEvents()), nil),
		"process": process(t, s.run),
	}
}

func pages(next func(page int) string) script {
	page := 0
	return script{methodTools: func(c call) string {
		page++
		return c.result(fmt.Sprintf(`{"tools":[{"name":"t%d"}],"nextCursor":%s}`, page, next(page)))
	}}
}

func manyTools(n int, tool string) script {
	return script{methodTools: func(c call) string {
		return c.result(`{"tools":[` + strings.Repeat(tool+",", n-1) + tool + `]}`)
	}}
}

func TestLimits(t *testing.T) {
	for name, test := range map[string]struct {
		script func() script
		limits Limits
		what   string
	}{
		"P-05 endless pages": {
			func() script { return pages(func(page int) string { return strconv.Quote(strconv.Itoa(page)) }) },
			Limits{Pages: 20}, LimitPages,
		},
		"P-05 repeated cursor": {
			func() script { return pages(func(page int) string { return strconv.Quote(strconv.Itoa(page % 3)) }) },
			Limits{}, LimitCursors,
		},
		"P-05 items over pages": {
			func() script { return pages(func(page int) string { return strconv.Quote(strconv.Itoa(page)) }) },
			Limits{Items: 5}, LimitItems,
		},
		"one tool too many": {func() script { return manyTools(10_001, `{"name":"t"}`) }, Limits{}, LimitItems},
		"item":              {func() script { return manyTools(1, `{"name":"`+strings.Repeat("x", 1000)+`"}`) }, Limits{ItemBytes: 1000}, LimitItemBytes},
		"catalog":           {func() script { return manyTools(10, `{"name":"0123456789"}`) }, Limits{CatalogBytes: 100}, LimitCatalogBytes},
		"reply":             {func() script { return manyTools(1, `{"name":"`+strings.Repeat("x", 2000)+`"}`) }, Limits{ReplyBytes: 1000}, LimitReplyBytes},
		"opening": {
			func() script {
				return script{methodInitialize: func(c call) string {
					return c.result(strings.Replace(scriptedOpening, `"scripted"`, `"`+strings.Repeat("x", 2<<20)+`"`, 1))
				}}
			},
			Limits{}, LimitReplyBytes,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkLimit(t, test.script(), test.limits, test.what)
		})
	}
}

// What a server sends by far too much of is not taken in either.
func TestLongLimits(t *testing.T) {
	for name, test := range map[string]struct {
		script script
		what   string
	}{
		"100,000 tools":     {manyTools(100_000, `{"name":"t"}`), LimitItems},
		"a million tools":   {manyTools(1_000_000, `{}`), LimitItems},
		"item":              {manyTools(1, `{"name":"`+strings.Repeat("x", 2<<20)+`"}`), LimitItemBytes},
		"50 MB description": {manyTools(1, `{"name":"t","description":"`+strings.Repeat("x", 50<<20)+`"}`), LimitReplyBytes},
	} {
		t.Run(name, func(t *testing.T) { checkLimit(t, test.script, Limits{}, test.what) })
	}
}

func checkLimit(t *testing.T, s script, limits Limits, what string) {
	t.Helper()
	for way, target := range ways(t, s) {
		_, err := Probe(withPatience(t), target, Options{Limits: limits})
		if err == nil {
			t.Fatalf("%s: got no error", way)
		}
		wantLimit(t, err, what)
	}
}

func TestLimitsAreNotHitAtTheLimit(t *testing.T) {
	for name, target := range ways(t, manyTools(100, `{"name":"0123456789"}`)) {
		catalog, err := Probe(withPatience(t), target, Options{Limits: Limits{Pages: 1, Items: 100, ItemBytes: 21, CatalogBytes: 2200}})
		if err != nil || catalog.Counts().Tools != 100 {
			t.Errorf("%s: got %v, %v", name, catalog, err)
		}
	}
}

// A stream of events that never ends is bounded by what it has sent, even if that
// is nothing but comments.
func TestEndlessStream(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for some := strings.Repeat(": still here\n\n", 100); ; {
			if _, err := io.WriteString(w, some); err != nil {
				return
			}
		}
	}))
	_, err := Probe(withPatience(t), HTTP(url, nil), Options{Limits: Limits{ReplyBytes: 1 << 20}})
	wantLimit(t, err, LimitReplyBytes)
}

func TestP05AnEmptyCursorIsOneInTheNewerEra(t *testing.T) {
	asked := 0
	s := script{
		methodDiscover: func(c call) string {
			return c.result(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}`)
		},
		methodTools: func(c call) string {
			asked++
			switch {
			case c.Params.Cursor == nil:
				return c.result(`{"tools":[{"name":"first"}],"nextCursor":"","resultType":"complete"}`)
			case *c.Params.Cursor == "":
				return c.result(`{"tools":[{"name":"second"}],"resultType":"complete"}`)
			default:
				return c.fail(-32602)
			}
		},
	}
	catalog, err := Probe(withPatience(t), process(t, s.run), Options{})
	if err != nil || toolNames(catalog) != "first second" || asked != 2 {
		t.Errorf("got %v, %v after %d requests", catalog, err, asked)
	}
}

// TestMemoryIsBounded measures all that is allocated, freed or not, so it does not
// depend on when the collector runs. The server's own share is taken off by having
// it write what it sends in small pieces.
func TestMemoryIsBounded(t *testing.T) {
	const limit = 1 << 20 // bytes of a reply
	piece := []byte(strings.Repeat(`{"a":[]},`, 1000))
	for name, open := range map[string]string{
		"tools without end":              `{"tools":[`,
		"a schema without end":           `{"tools":[{"name":"t","inputSchema":[`,
		"capabilities without end":       `{"capabilities":{"experimental":{"x":[`,
		"an unknown member without end":  `{"vendor":[`,
		"a description that never stops": `{"tools":[{"description":"`,
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				data, _ := io.ReadAll(r.Body)
				opening := strings.Contains(string(data), `"initialize"`)
				if strings.Contains(open, "tools") != opening && !strings.Contains(string(data), methodDiscover) {
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":2,"result":`+open)
					for range 8 * limit / len(piece) {
						if _, err := w.Write(piece); err != nil {
							return
						}
					}
					return
				}
				r.Body = io.NopCloser(strings.NewReader(string(data)))
				script{}.ServeHTTP(w, r)
			}))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Probe(withPatience(t), HTTP(url, nil), Options{Limits: Limits{ReplyBytes: limit}})
			runtime.ReadMemStats(&after)
			wantLimit(t, err, LimitReplyBytes)
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 8*limit {
				t.Errorf("allocated %d KiB for a reply that may have %d", allocated>>10, limit>>10)
			} else {
				t.Logf("allocated %d KiB", allocated>>10)
			}
		})
	}
}

// What fits into the limits and is made to be as large as possible once decoded.
func TestMemoryIsBoundedWithinTheLimits(t *testing.T) { checkMemoryWithinTheLimits(t, 1) }

func TestLongMemoryIsBoundedWithinTheLimits(t *testing.T) { checkMemoryWithinTheLimits(t, 10) }

// checkMemoryWithinTheLimits has so many tenths of what is possible.
func checkMemoryWithinTheLimits(t *testing.T, tenths int) {
	t.Helper()
	for name, tool := range map[string]string{
		"many tools":   strings.Repeat(`{"name":"t"},`, 999*tenths) + `{"name":"t"}`,
		"a deep mess":  `{"name":"t","inputSchema":[` + strings.Repeat(`{},`, 30_000*tenths) + `{}]}`,
		"many members": `{"name":"t"` + strings.Repeat(`,"":0`, 20_000*tenths) + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			target := HTTP(serve(t, manyTools(1, tool)), nil)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Probe(withPatience(t), target, Options{})
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatalf("Probe: %v", err)
			}
			if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > uint64(16*tenths) {
				t.Errorf("allocated %d MiB", allocated)
			} else {
				t.Logf("allocated %d MiB", allocated)
			}
		})
	}
}
