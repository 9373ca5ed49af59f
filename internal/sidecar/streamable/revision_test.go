package streamable

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// L-22, T-19: whoever names a revision that is not served, in a header alone or in the
// message, is answered with those that are, under the id of its request.
func TestUnservedRevision(t *testing.T) {
	e := newEndpoint(t, nil)
	id := e.openSession(revision20251125)
	const enveloped = `{"jsonrpc":"2.0","id":"m","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	for name, test := range map[string]struct {
		method, body, session, revision string
		want                            any // the id
	}{
		"a request":                   {"POST", ping, id, "2026-07-28", 1.0},
		"a request outside a session": {"POST", ping, "", "2026-07-28", 1.0},
		"a request, garbage":          {"POST", ping, id, "v999", 1.0},
		"a notification":              {"POST", `{"jsonrpc":"2.0","method":"n"}`, id, "2026-07-28", nil},
		"an answer":                   {"POST", `{"jsonrpc":"2.0","id":7,"result":{}}`, id, "2026-07-28", nil},
		"a batch":                     {"POST", `[` + ping + `]`, id, "2026-07-28", nil},
		"a stream":                    {"GET", "", id, "2026-07-28", nil},
		"an end":                      {"DELETE", "", id, "2026-07-28", nil},
		"in the message":              {"POST", enveloped, "", "2026-07-28", "m"},
	} {
		t.Run(name, func(t *testing.T) {
			response := e.do(test.method, test.body, map[string]string{
				"Content-Type": typeJSON, "Accept": typeJSON + ", " + typeEvents, headerSession: test.session, headerRevision: test.revision,
			})
			type refusal struct {
				ID    any `json:"id"`
				Error struct {
					Code int `json:"code"`
					Data struct {
						Supported []string `json:"supported"`
						Requested string   `json:"requested"`
					} `json:"data"`
				} `json:"error"`
			}
			var got, want refusal
			if err := json.Unmarshal([]byte(bodyOf(t, response)), &got); err != nil {
				t.Fatalf("%s: %v", response.Status, err)
			}
			want.ID, want.Error.Code = test.want, -32022
			want.Error.Data.Supported = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}
			want.Error.Data.Requested = test.revision
			if diff := cmp.Diff(want, got); diff != "" || response.StatusCode != http.StatusBadRequest {
				t.Errorf("%s (-want +got):\n%s", response.Status, diff)
			}
		})
	}
	if body := bodyOf(t, e.post(id, ping)); body != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("afterwards ping answers %s", body)
	}
}
