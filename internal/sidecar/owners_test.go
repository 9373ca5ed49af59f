package sidecar

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// Tokens of two people, one of them refreshed.
var (
	anna          = jwt(`{"iss":"https://idp","sub":"anna","exp":1}`)
	annaRefreshed = jwt(`{"iss":"https://idp","sub":"anna","exp":2}`)
	bert          = jwt(`{"iss":"https://idp","sub":"bert","exp":1}`)
)

func jwt(claims string) string {
	return "Bearer e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

// visitor makes requests with a token, or without one.
type visitor struct {
	t   *testing.T
	url string
}

func (v *visitor) do(method, token, session, body string, headers ...string) (status int, text string, header http.Header) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), method, v.url, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range map[string]string{"Authorization": token, sessionHeader: session} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.Close { // which the header does not say any more
		response.Header.Set("Connection", "close")
	}
	if method == http.MethodGet && response.StatusCode == http.StatusOK {
		return response.StatusCode, "", response.Header // it does not end
	}
	all, err := io.ReadAll(response.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return response.StatusCode, string(all), response.Header
}

func (v *visitor) want(what string, want int, method, token, session, body string) {
	v.t.Helper()
	if status, text, _ := v.do(method, token, session, body); status != want {
		v.t.Errorf("%s: got %d: %.300s\nwant %d", what, status, text, want)
	}
}

func (v *visitor) open(token string) (session string) {
	v.t.Helper()
	status, text, header := v.do(http.MethodPost, token, "", initializeMessage)
	if session = header.Get(sessionHeader); status != http.StatusOK || session == "" {
		v.t.Fatalf("initialize: %d: %s", status, text)
	}
	return session
}

const pingMessage = `{"jsonrpc":"2.0","id":5,"method":"ping"}`

// T-28: a session belongs to the principal that opened it. For all others it does not
// exist, whatever they do with its id. A token that is refreshed changes nothing.
func TestSessionsBelongToTheirPrincipal(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) string{
		"a process for each session": func(t *testing.T) string {
			_, url := startAdapter(t, nil)
			return url
		},
		"one process for all": func(t *testing.T) string {
			_, url := startAdapter(t, func(c *config.Config) { c.Shared = true })
			return url
		},
		"translated": func(t *testing.T) string {
			_, url := startAdapterOn(t, newListener(t), nil, eraFilter, "modern", bothServer)
			return url
		},
		"an HTTP server": func(t *testing.T) string {
			_, url := adapterFor(t, &httpServer{initialize: agreeToInitialize}, nil)
			return url
		},
		"an HTTP server, translated": func(t *testing.T) string {
			_, url := adapterFor(t, &httpServer{initialize: refuseInitialize}, nil)
			return url
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := &visitor{t, start(t)}
			for opener, others := range map[string][]string{
				anna: {bert, "", "Bearer opaque"}, "": {anna, "Bearer opaque"}, "Bearer opaque": {anna, ""},
			} {
				session := v.open(opener)
				if name == "an HTTP server" && opener == "" {
					others = nil // the server may ask for a token later
				}
				for _, other := range others {
					v.want("another client calls", 404, http.MethodPost, other, session, pingMessage)
					v.want("another client listens", 404, http.MethodGet, other, session, "")
					v.want("another client ends the session", 404, http.MethodDelete, other, session, "")
				}
				if opener == anna {
					v.want("a refreshed token", 200, http.MethodPost, annaRefreshed, session, pingMessage)
				}
				v.want("the owner", 200, http.MethodPost, opener, session, pingMessage)
				v.want("the owner ends the session", 204, http.MethodDelete, opener, session, "")
			}
		})
	}
}

// The connection of a client of the oldest transport is its own, too.
func TestConnectionsBelongToTheirPrincipal(t *testing.T) {
	t.Parallel()
	_, url := startAdapter(t, func(c *config.Config) { c.LegacySSE = true })
	w := &walker{t: t, url: strings.TrimSuffix(url, Path)}
	first, leave := w.listen("/sse", "Authorization", anna)
	defer leave()
	_, endpoint, _ := strings.Cut(strings.TrimSpace(first), "data: ")
	v := &visitor{t, w.url + endpoint}
	for token, want := range map[string]int{bert: 404, "": 404, "Bearer opaque": 404, annaRefreshed: 202, anna: 202} {
		v.want("a message", want, http.MethodPost, token, "", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
}

// A token that does not say whose it is counts, for servers that check tokens themselves,
// if the server has accepted it in the session.
func TestTokensThatTheServerAccepts(t *testing.T) {
	t.Parallel()
	for name, initialize := range map[string]func(http.ResponseWriter, *http.Request, string){"native": agreeToInitialize, "translated": refuseInitialize} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &httpServer{initialize: initialize, call: func(w http.ResponseWriter, r *http.Request, id string, _ []byte) {
				if r.Header.Get("Authorization") == "Bearer bad" {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				reply(w, id, `{"resultType":"complete","content":[]}`)
			}}
			_, url := adapterFor(t, server, nil)
			v := &visitor{t, url}
			const call = `{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"t","arguments":{}}}`
			session := v.open("Bearer one")
			v.want("a token that the server does not know", 404, http.MethodDelete, "Bearer two", session, "")
			v.do(http.MethodPost, "Bearer bad", session, call)
			if name == "translated" { // a native server sees it, and decides
				v.want("a cancellation by such a token", 404, http.MethodPost, "Bearer bad", session, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":6}}`)
			}
			v.want("a token that the server refuses", 404, http.MethodDelete, "Bearer bad", session, "")
			v.want("the next token of the client", 200, http.MethodPost, "Bearer two", session, call)
			v.want("which the server has accepted", 204, http.MethodDelete, "Bearer two", session, "")
		})
	}
}

// A server that speaks HTTP can ask for a token when a session is open already. The first
// that it accepts owns the session.
func TestServerAsksForATokenLater(t *testing.T) {
	t.Parallel()
	server := &httpServer{initialize: agreeToInitialize, call: func(w http.ResponseWriter, r *http.Request, id string, _ []byte) {
		if r.Header.Get("Authorization") != anna {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		reply(w, id, `{"content":[]}`)
	}}
	_, url := adapterFor(t, server, nil)
	v := &visitor{t, url}
	const call = `{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"t","arguments":{}}}`
	session := v.open("")
	v.want("without a token", 401, http.MethodPost, "", session, call)
	v.want("with one that the server refuses", 401, http.MethodPost, bert, session, call)
	v.want("with one that the server accepts", 200, http.MethodPost, anna, session, call)
	for _, other := range []string{bert, "", "Bearer opaque"} {
		v.want("another client, from then on", 404, http.MethodPost, other, session, pingMessage)
		v.want("another client ends the session", 404, http.MethodDelete, other, session, "")
	}
	v.want("the owner", 204, http.MethodDelete, annaRefreshed, session, "")
}

// A token that is refreshed while a call waits for its client's input changes nothing, and
// for every other client the call does not exist.
func TestParkedCallsBelongToTheirPrincipal(t *testing.T) {
	t.Parallel()
	_, url := startAdapter(t, nil)
	v := &visitor{t, url}
	post := func(token, more string) (result map[string]any, code float64) {
		t.Helper()
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{},` + more +
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}}`
		_, text, _ := v.do(http.MethodPost, token, "", body, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "ask")
		var answer struct {
			Result map[string]any
			Error  struct{ Code float64 }
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return answer.Result, answer.Error.Code
	}
	asked, _ := post(anna, "")
	state, _ := asked["requestState"].(string)
	requests, _ := asked["inputRequests"].(map[string]any)
	if state == "" || len(requests) != 1 {
		t.Fatalf("the call is not parked: %v", asked)
	}
	answers := map[string]any{}
	for key := range requests {
		answers[key] = map[string]any{"action": "accept", "content": map[string]any{}}
	}
	responses, err := json.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	more := `"requestState":"` + state + `","inputResponses":` + string(responses) + `,`
	for _, other := range []string{bert, "", "Bearer opaque"} {
		if result, code := post(other, more); code != -32602 {
			t.Errorf("another client continues the call: %v, error %v", result, code)
		}
	}
	if result, code := post(annaRefreshed, more); code != 0 || result["content"] == nil {
		t.Errorf("with a refreshed token: %v, error %v", result, code)
	}
}
