package streamable

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

// R54: whatever is refused alone is refused in a batch, wherever it stands there, and
// nothing of such a batch reaches the server.
func TestR54BatchesPassTheSameChecks(t *testing.T) {
	const good = `{"jsonrpc":"2.0","id":"good","method":"ping"}`
	const stateless = `"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`
	e := newEndpoint(t, nil, bodies(1<<10, time.Hour))
	id, newer := e.openSession(revision20250326), e.openSession(revision20250618)
	sent := e.server().lines()
	full := map[string]string{"Content-Type": typeJSON, "Accept": typeJSON + "," + typeEvents, headerSession: id}
	for name, test := range map[string]struct {
		element string
		headers map[string]string // changes
		alone   int               // what it is answered by itself; 0 if it is fine there
		batch   int
		want    string
	}{
		"no session":               {ping, map[string]string{headerSession: ""}, 400, 400, "header is missing"},
		"unknown session":          {ping, map[string]string{headerSession: "nope"}, 404, 404, "no such session"},
		"revision without batches": {ping, map[string]string{headerSession: newer}, 0, 400, "2025-03-26 only"},
		"unknown revision":         {ping, map[string]string{headerRevision: "1999-01-01"}, 400, 400, "1999-01-01"},
		"evil origin":              {ping, map[string]string{"Origin": "http://evil.example"}, 403, 403, "evil.example"},
		"evil host":                {ping, map[string]string{"Host": "evil.example"}, 403, 403, "evil.example"},
		"content type":             {ping, map[string]string{"Content-Type": "text/plain"}, 415, 415, typeJSON},
		"accept":                   {ping, map[string]string{"Accept": typeJSON}, 406, 406, typeEvents},
		"size":                     {`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 1<<10) + `"}`, nil, 413, 413, "1024 bytes"},
		"initialize":               {fmt.Sprintf(initializeBody, revision20250326), nil, 400, 400, "initialize"},
		"era":                      {`{"jsonrpc":"2.0","id":"m","method":"tools/list",` + stateless + `}`, nil, 400, 400, `stateless protocol must not be part of a batch`},
		"era of a notification":    {`{"jsonrpc":"2.0","method":"n",` + stateless + `}`, nil, 400, 400, `stateless protocol must not be part of a batch`},
		"null id":                  {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, nil, 400, 400, "-32600"},
		"no method":                {`{"jsonrpc":"2.0","id":1,"method":""}`, nil, 400, 400, "-32600"},
		"method twice":             {`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, nil, 400, 400, "-32600"},
		"other version":            {`{"jsonrpc":"1.0","id":1,"method":"ping"}`, nil, 400, 400, "-32600"},
		"not JSON":                 {`{"jsonrpc":"2.0",`, nil, 400, 400, "-32"},
		"a batch in a batch":       {`[` + ping + `]`, nil, 0, 400, "-32600"},
	} {
		t.Run(name, func(t *testing.T) {
			headers := maps.Clone(full)
			maps.Copy(headers, test.headers)
			bodies := map[string]int{
				`[` + test.element + `]`:                           test.batch,
				`[` + good + `,` + test.element + `]`:              test.batch,
				`[` + test.element + `,` + good + `]`:              test.batch,
				`[` + good + `,` + test.element + `,` + good + `]`: test.batch,
			}
			if test.alone != 0 {
				bodies[test.element] = test.alone
			}
			for body, status := range bodies {
				response := e.do("POST", body, headers)
				if got := bodyOf(t, response); response.StatusCode != status || body != test.element && !strings.Contains(got, test.want) {
					t.Errorf("%.200s: got %s: %s\nwant %d with %q", body, response.Status, got, status, test.want)
				}
			}
		})
	}
	if got := e.server().lines(); got != sent {
		t.Errorf("the server was sent\n%s\nafter\n%s", got, sent)
	}
	afterwards := bodyOf(t, e.post(id, `[`+ping+`,`+good+`]`))
	for _, want := range []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":"good","result":{}}`} {
		if !strings.Contains(afterwards, want) {
			t.Errorf("afterwards: got %s, want %s in it", afterwards, want)
		}
	}
}
