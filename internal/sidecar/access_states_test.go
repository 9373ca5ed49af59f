package sidecar

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// asksForInput is a result of a server that wants the request again, with the state.
const asksForInput = `{ "resultType":"input_required", "inputRequests":{}, "requestState":"{\"step\":1}" }`

// stateIn returns the state of an answer, as JSON. It is empty if there is none.
func stateIn(t *testing.T, got shown) string {
	t.Helper()
	var answer struct {
		Result struct {
			State json.RawMessage `json:"requestState"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(got.message), &answer); err != nil {
		t.Fatalf("%s: %v", got.message, err)
	}
	return string(answer.Result.State)
}

// An HTTP server does not know its callers. The adapter keeps each caller from continuing the call of another.
func TestStatesOfHTTPServersBelongToTheirUser(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request, string)
		change func(*adapterapi.Access)
	}{
		"JSON":              {says(200, "application/json; charset=utf-8", answerOf("ID", asksForInput)), echoForAll},
		"events":            {says(200, typeEvents, "data: "+answerOf("ID", asksForInput)+"\n\n"), echoForAll},
		"JSON, all rights":  {says(200, typeJSON, answerOf("ID", asksForInput)), everythingForAll},
		"event, all rights": {says(200, typeEvents, "data: "+answerOf("ID", asksForInput)+"\n\n"), everythingForAll},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &scripted{odd: map[string]func(http.ResponseWriter, *http.Request, string){"asks": test.answer}}
			g := newGuard(t, test.change)
			url := startScripted(t, g, server, config.StreamableHTTP)
			alice, bob := oddSpeaker{g, url, g.token("alice", nil), "asks"}, oddSpeaker{g, url, g.token("bob", nil), "asks"}
			first := alice.ask("tools/call", `"name":"echo"`)
			state := stateIn(t, first)
			if !strings.HasSuffix(state, `.{\"step\":1}"`) || !strings.Contains(first.message, `{ "resultType":"input_required", "inputRequests":{}, "requestState":"`) {
				t.Fatalf("alice gets %d %s", first.status, first.message)
			}
			server.take()
			for who, stolen := range map[string]string{"bob with alice's state": state, "bob with the server's state": `"{\"step\":1}"`} {
				got := bob.ask("tools/call", `"name":"echo","requestState":`+stolen)
				if got.status != 200 || !strings.Contains(got.message, `"id":7`) || !strings.Contains(got.message, "-32602") || !strings.Contains(got.message, "requestState invalid or expired") {
					t.Errorf("%s: %d %s", who, got.status, got.message)
				}
			}
			if got := server.take(); len(got) > 0 {
				t.Errorf("the server gets %v from bob", got)
			}
			alice.token = g.token("alice", map[string]any{"jti": "refreshed"})
			if again := alice.ask("tools/call", `"name":"echo","requestState":`+state); !strings.HasSuffix(stateIn(t, again), `.{\"step\":1}"`) {
				t.Errorf("alice goes on: %d %s", again.status, again.message)
			}
			if got := server.take(); len(got) != 1 || !strings.Contains(strings.ReplaceAll(got[0].body, " ", ""), `"requestState":"{\"step\":1}"`) {
				t.Errorf("the server gets %v from alice", got)
			}
		})
	}
}

// oddSpeaker is a client of 2026-07-28 whom a scripted server answers in an odd way.
type oddSpeaker struct {
	guard           *guard
	url, token, odd string
}

func (s *oddSpeaker) ask(method, params string) shown {
	s.guard.t.Helper()
	text := requestText(method, params+","+modernMeta)
	return s.guard.ask(http.MethodPost, s.url, s.token, text, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method, "X-Odd", s.odd)
}

// everythingForAll gives all users with a token everything.
func everythingForAll(a *adapterapi.Access) {
	a.Rules = []adapterapi.AccessRule{{
		Subjects: []adapterapi.AccessSubject{{Kind: adapterapi.SubjectGroup, Name: "system:authenticated"}},
		Tools:    []string{"*"}, Prompts: []string{"*"}, Resources: []string{"*"},
	}}
	a.Hidden = nil
}

// Without verified callers, answers and requests pass byte for byte.
func TestStatesWithoutVerifiedCallersAreNotChanged(t *testing.T) {
	t.Parallel()
	body := "data: " + answerOf("7", asksForInput) + "\r\n\r\n: a comment\n\nevent: other\ndata: 1\n\n"
	server := &scripted{odd: map[string]func(http.ResponseWriter, *http.Request, string){
		"JSON": says(200, typeJSON, answerOf("7", asksForInput)), "events": says(200, typeEvents, body),
	}}
	g := newGuard(t, func(a *adapterapi.Access) {
		a.Mode, a.Rules, a.Blocked, a.Hidden, a.Scopes, a.Issuers, a.Resources, a.AuthorizationServers = adapterapi.AccessNone, nil, nil, nil, nil, nil, nil, nil
	})
	url := startScripted(t, g, server, config.StreamableHTTP)
	text := requestText("tools/call", `"name":"echo","requestState":"{\"step\":1}",`+modernMeta)
	for odd, want := range map[string]string{"JSON": answerOf("7", asksForInput), "events": body} {
		server.take()
		response := g.request(http.MethodPost, url, "", text, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "echo", "X-Odd", odd)
		all, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(all) != want {
			t.Errorf("%s: the client gets %d %q, %v", odd, response.StatusCode, all, err)
		}
		if got := server.take(); len(got) != 1 || got[0].body != text {
			t.Errorf("%s: the server gets %v", odd, got)
		}
	}
}
