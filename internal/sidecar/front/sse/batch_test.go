package sse

import (
	"net/http"
	"strings"
	"testing"
)

// J-09, R54: batches are taken until a revision is agreed on that has none.
func TestR54BatchesAndTheRevision(t *testing.T) {
	const batch = `[{"jsonrpc":"2.0","id":"one","method":"ping"},{"jsonrpc":"2.0","id":"two","method":"ping"}]`
	for revision, taken := range map[string]bool{"2024-11-05": true, "2025-03-26": true, "2025-06-18": false, "2025-11-25": false} {
		t.Run(revision, func(t *testing.T) {
			e := newEndpoint(t, nil)
			c := e.connect()
			c.say(strings.Replace(initializeBody, "2024-11-05", revision, 1))
			wantIn(t, c.hear(), `"protocolVersion":"`+revision+`"`)
			if taken {
				c.say(batch)
				wantIn(t, c.hear(), `"id":"one","result"`)
				wantIn(t, c.hear(), `"id":"two","result"`)
				return
			}
			got := c.post(batch)
			if got.status != http.StatusBadRequest {
				t.Errorf("got %d: %s", got.status, got.body)
			}
			wantIn(t, got.body, "-32600", revision)
			c.call(1, "echo", `"text":"next"`) // and nothing of it was passed on
			wantIn(t, c.hear(), `"id":1,`, "next")
		})
	}
}

// R54: what is refused alone is refused in a batch.
func TestR54BatchesPassTheSameChecks(t *testing.T) {
	e := newEndpoint(t, nil)
	c := e.connect()
	const good = `{"jsonrpc":"2.0","id":"good","method":"ping"}`
	for name, element := range map[string]string{
		"initialize":   initializeBody,
		"era":          `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		"null id":      `{"jsonrpc":"2.0","id":null,"method":"ping"}`,
		"method twice": `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`,
		"size":         `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 1<<20) + `"}`,
		"batch":        `[` + good + `]`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, body := range []string{`[` + element + `]`, `[` + good + `,` + element + `]`, `[` + element + `,` + good + `]`} {
				if got := c.post(body); got.status != http.StatusBadRequest && got.status != http.StatusRequestEntityTooLarge {
					t.Errorf("%.200s: got %d", body, got.status)
				}
			}
		})
	}
	c.call(1, "echo", `"text":"next"`) // nothing of it reached the server
	wantIn(t, c.hear(), `"id":1,`, "next")
}
