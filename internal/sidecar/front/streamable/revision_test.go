package streamable

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
)

// B-01: what a message says of itself comes first. A header alone that no session can
// have is a mistake of its client's, but what is not to be answered does no harm.
func TestUnservedRevision(t *testing.T) {
	e := newEndpoint(t, nil)
	id := e.openSession(revision20251125)
	const (
		enveloped    = `{"jsonrpc":"2.0","id":"m","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
		notification = `{"jsonrpc":"2.0","method":"n"}`
		answer       = `{"jsonrpc":"2.0","id":7,"result":{}}`
		older        = `{"supported":["2024-11-05","2025-03-26","2025-06-18","2025-11-25"],"requested":`
	)
	type want struct {
		Status int
		Allow  string
		ID     string
		Code   int
		Data   string
	}
	for name, test := range map[string]struct {
		method, body, session, revision string
		want                            want
	}{
		"B-01 a request":                   {"POST", ping, id, "2026-07-28", want{400, "", "1", -32602, ""}},
		"B-01 a request outside a session": {"POST", ping, "", "2026-07-28", want{400, "", "1", -32602, ""}},
		"B-01 a request, garbage":          {"POST", ping, id, "v999", want{400, "", "1", -32602, ""}},
		"B-01 initialize":                  {"POST", fmt.Sprintf(initializeBody, revision20251125), "", "2026-07-28", want{400, "", "0", -32602, ""}},
		"M-04 a notification":              {"POST", notification, id, "2026-07-28", want{202, "", "", 0, ""}},
		"T-19 a notification, garbage":     {"POST", notification, id, "v999", want{400, "", "", -32022, older + `"v999"}`}},
		"M-03 an answer":                   {"POST", answer, id, "2026-07-28", want{400, "", "", -32600, ""}},
		"T-19 an answer, garbage":          {"POST", answer, id, "v999", want{400, "", "", -32022, older + `"v999"}`}},
		"J-09 a batch":                     {"POST", `[` + ping + `]`, id, "2026-07-28", want{400, "", "", -32600, ""}},
		"T-19 a batch, garbage":            {"POST", `[` + ping + `]`, id, "v999", want{400, "", "", -32022, older + `"v999"}`}},
		"M-01 a stream":                    {"GET", "", id, "2026-07-28", want{405, "POST", "", -32600, ""}},
		"M-01 an end":                      {"DELETE", "", id, "2026-07-28", want{405, "POST", "", -32600, ""}},
		"T-19 a stream, garbage":           {"GET", "", id, "v999", want{400, "", "", -32022, older + `"v999"}`}},
		"L-22 in the message":              {"POST", enveloped, "", "2026-07-28", want{400, "", `"m"`, -32022, older + `"2026-07-28"}`}},
		"L-22 in the message only":         {"POST", enveloped, "", "", want{400, "", `"m"`, -32022, older + `"2026-07-28"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			response := e.do(test.method, test.body, map[string]string{
				"Content-Type": typeJSON, "Accept": typeJSON + ", " + typeEvents, headerSession: test.session, headerRevision: test.revision,
			})
			var refusal struct {
				ID    json.RawMessage `json:"id"`
				Error struct {
					Code int             `json:"code"`
					Data json.RawMessage `json:"data"`
				} `json:"error"`
			}
			if body := bodyOf(t, response); body != "" {
				if err := json.Unmarshal([]byte(body), &refusal); err != nil {
					t.Fatalf("%s: %v", response.Status, err)
				}
			}
			got := want{response.StatusCode, response.Header.Get("Allow"), string(refusal.ID), refusal.Error.Code, string(refusal.Error.Data)}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if body := bodyOf(t, e.post(id, ping)); body != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("afterwards ping answers %s", body)
	}
}

// B-01: a message that names its version itself is handed on, with or without a session.
func TestStatelessIsHandedOn(t *testing.T) {
	var got []string
	e := newEndpoint(t, func(o *Options) {
		o.Stateless = func(w http.ResponseWriter, r *edge.Request) {
			got = append(got, string(r.Messages[0].Envelope.Method))
			w.WriteHeader(http.StatusTeapot)
		}
	})
	id := e.openSession(revision20251125)
	for _, headers := range []map[string]string{{}, {headerSession: id}, {headerRevision: "2026-07-28"}, {headerRevision: revision20251125, headerSession: id}} {
		headers["Content-Type"], headers["Accept"] = typeJSON, typeJSON+", "+typeEvents
		for _, method := range []string{"tools/list", "initialize"} {
			body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
			if response := e.do("POST", body, headers); response.StatusCode != http.StatusTeapot {
				t.Errorf("%s with %v: %s", method, headers, response.Status)
			}
		}
	}
	if len(got) != 8 {
		t.Errorf("handed on %q", got)
	}
}

// A header that names the session, its revision or the last event stands there once: parts that
// take another one of them would disagree about whose a request is.
func TestRepeatedHeaders(t *testing.T) {
	e := newEndpoint(t, nil)
	id := e.openSession(revision20251125)
	sent := e.server().lines()
	for name, test := range map[string]struct {
		method string
		header string
		values []string
	}{
		"session of a call":      {"POST", headerSession, []string{id, "other"}},
		"the same session":       {"POST", headerSession, []string{id, id}},
		"session of a stream":    {"GET", headerSession, []string{id, "other"}},
		"session that is to end": {"DELETE", headerSession, []string{id, "other"}},
		"revision of a call":     {"POST", headerRevision, []string{revision20251125, revision20250326}},
		"last event of a stream": {"GET", headerLastEventID, []string{"1-1", "1-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), test.method, e.url, strings.NewReader(ping))
			if err != nil {
				t.Fatal(err)
			}
			request.Header = http.Header{"Content-Type": {typeJSON}, "Accept": {typeJSON + "," + typeEvents}, headerSession: {id}}
			request.Header[test.header] = test.values
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != 400 {
				_ = response.Body.Close() // it may be a stream
				t.Fatalf("got %s", response.Status)
			}
			if got := bodyOf(t, response); !strings.Contains(got, "the "+test.header+" header stands more than once") {
				t.Errorf("got %s", got)
			}
		})
	}
	if got := e.server().lines(); got != sent {
		t.Errorf("the server was sent\n%s\nafter\n%s", got, sent)
	}
	if got := bodyOf(t, e.post(id, ping)); !strings.Contains(got, `"result"`) {
		t.Errorf("afterwards the session answers %s", got)
	}
}
