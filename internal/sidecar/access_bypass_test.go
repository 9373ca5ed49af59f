package sidecar

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// attempt is a request that tries to bypass the rules. Alice, who may call echo, sends it.
type attempt struct {
	method, path, body string
	token              string // in place of alice's; - is none
	headers            []string
	status             int
	challenge          string // a part of it; - is none
	message            string // a part of it
}

// callOf is a call in a session, with these params.
func callOf(params string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{` + params + `}}`
}

// attempts are ways around rules that worked elsewhere, or could. None of them reaches the server.
var attempts = map[string]attempt{
	"a tool without a rule":            {body: callOf(`"name":"secret"`), status: 403, challenge: "-", message: `"id":7,"error":{"code":403,`},
	"a tool in another case":           {body: callOf(`"name":"Echo"`), status: 403, challenge: "-"},
	"a tool with a control character":  {body: callOf(`"name":"echo\u0000"`), status: 403, challenge: "-"},
	"a tool with a blank":              {body: callOf(`"name":"echo "`), status: 403, challenge: "-"},
	"no name":                          {body: callOf(`"arguments":{}`), status: 403, challenge: "-"},
	"a name that is no text":           {body: callOf(`"name":["secret"]`), status: 403, challenge: "-"},
	"params are a list":                {body: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":["secret"]}`, status: 400},
	"two names":                        {body: callOf(`"name":"echo","name":"secret"`), status: 400},
	"a name in another case":           {body: callOf(`"name":"echo","Name":"secret"`), status: 400},
	"a name with a control character":  {body: callOf(`"name":"echo","name\u0000":"secret"`), status: 400},
	"a name by an escape":              {body: callOf(`"name":"echo","n\u0061me":"secret"`), status: 400},
	"a name with a long s":             {body: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo"},"param\u017f":{"name":"secret"}}`, status: 400},
	"two methods":                      {body: `{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call","params":{"name":"secret"}}`, status: 400},
	"a method in another case":         {body: `{"jsonrpc":"2.0","id":7,"method":"Tools/Call","params":{"name":"secret"}}`, status: 403, challenge: "-"},
	"an unknown method":                {body: `{"jsonrpc":"2.0","id":7,"method":"tools/run","params":{"name":"secret"}}`, status: 403, challenge: "-"},
	"a call as a notification":         {body: `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"secret"}}`, status: 403, challenge: "-"},
	"a batch":                          {body: "[" + requestText("ping", "") + "," + callOf(`"name":"secret"`) + "]", status: 403, challenge: "-"},
	"a batch in a batch":               {body: "[[" + callOf(`"name":"secret"`) + "]]", status: 400},
	"two messages":                     {body: requestText("ping", "") + callOf(`"name":"secret"`), status: 400},
	"a byte order mark":                {body: "\ufeff" + callOf(`"name":"secret"`), status: 400},
	"text/plain":                       {body: callOf(`"name":"secret"`), headers: []string{"Content-Type", "text/plain"}, status: 415},
	"text/plain, of a tool with one":   {body: callOf(`"name":"echo"`), headers: []string{"Content-Type", "text/plain"}, status: 415},
	"compressed":                       {body: callOf(`"name":"secret"`), headers: []string{"Content-Encoding", "gzip"}, status: 415},
	"the method of HTTP in a header":   {body: callOf(`"name":"secret"`), headers: []string{"X-HTTP-Method-Override", "GET"}, status: 403, challenge: "-"},
	"a header that names another tool": {body: callOf(`"name":"secret"`), headers: []string{"Mcp-Name", "echo"}, status: 403, challenge: "-"},
	"a completion":                     {body: `{"jsonrpc":"2.0","id":7,"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"matrix://plain"}}}`, status: 403, challenge: "-"},
	"a resource beside the prefix":     {body: `{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"matrix://item/../plain"}}`, status: 403, challenge: "-"},
	"a resource in code":               {body: `{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"matrix://item/%2e%2e/plain"}}`, status: 403, challenge: "-"},
	"no token":                         {body: callOf(`"name":"echo"`), token: "-", status: 401, challenge: `Bearer resource_metadata="` + metadataURL + `", scope="mcp:use"`, message: `"code":401`},
	"no token to listen":               {method: http.MethodGet, token: "-", status: 401, challenge: "resource_metadata="},
	"no token to end the session":      {method: http.MethodDelete, token: "-", status: 401, challenge: "resource_metadata="},
	"an empty token":                   {body: callOf(`"name":"echo"`), token: "Bearer ", status: 401, challenge: `Bearer resource_metadata="` + metadataURL + `", scope="mcp:use"`},
	"another scheme":                   {body: callOf(`"name":"echo"`), token: "Basic YWxpY2U6", status: 400, challenge: `Bearer error="invalid_request"`},
	"no JWT":                           {body: callOf(`"name":"echo"`), token: "Bearer opaque", status: 401, challenge: `Bearer error="invalid_token", resource_metadata="` + metadataURL + `", scope="mcp:use"`},
	"a token with odd bytes":           {body: callOf(`"name":"echo"`), token: "Bearer a b", status: 400, challenge: `Bearer error="invalid_request"`},
	"a token of 17 KiB":                {body: callOf(`"name":"echo"`), token: "Bearer " + strings.Repeat("a", 17<<10), status: 400, challenge: `Bearer error="invalid_request"`},
	"a token in the query":             {path: "?access_token=TOKEN", body: callOf(`"name":"echo"`), token: "-", status: 400, challenge: `Bearer error="invalid_request"`},
	"a token in the query as well":     {path: "?access_token=TOKEN", body: callOf(`"name":"echo"`), status: 400, challenge: `Bearer error="invalid_request"`},
	"a token in the query, in code":    {path: "?a=b&%61ccess%5Ftoken=TOKEN", body: callOf(`"name":"echo"`), status: 400, challenge: `Bearer error="invalid_request"`},
	"a token in the query, apart":      {path: "?a=b;access_token=TOKEN", body: callOf(`"name":"echo"`), status: 400, challenge: `Bearer error="invalid_request"`},
	"a token in the body":              {body: "access_token=TOKEN", token: "-", headers: []string{"Content-Type", "application/x-www-form-urlencoded"}, status: 401, challenge: "resource_metadata="},
	"a session that is not there":      {body: callOf(`"name":"echo"`), headers: []string{sessionHeader, "nonsense"}, status: 404},
}

// No odd message and no odd request gets past the rules, and the server never sees one.
func TestBypasses(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	server := &scripted{sessionsOnly: true}
	_, process := startAdapter(t, g.guarded(nil))
	for name, url := range map[string]string{"an HTTP server": startScripted(t, g, server, config.StreamableHTTP), "a process": process} {
		t.Run(name, func(t *testing.T) {
			inside := *g
			inside.t = t
			s := &sessionSpeaker{guard: &inside, url: url, token: g.token("alice", nil), revision: "2025-03-26"}
			if status := s.open(); status != 200 {
				t.Fatalf("alice connects: %d", status)
			}
			for name, test := range attempts {
				t.Run(name, func(t *testing.T) {
					inside.t = t
					test.check(&inside, s)
					for _, got := range server.take() {
						if got.header.Get("X-Odd") != "" { // the adapter itself pings the server
							t.Errorf("the server gets %+v", got)
						}
					}
				})
			}
			inside.t = t
			if got := s.ask("tools/call", `"name":"echo","arguments":{"text":"x"}`); got.status != 200 || strings.Contains(got.message, `"error"`) {
				t.Errorf("afterwards, alice gets %d %s", got.status, got.message)
			}
		})
	}
}

func (a *attempt) check(g *guard, s *sessionSpeaker) {
	g.t.Helper()
	method, token := a.method, a.token
	if method == "" {
		method = http.MethodPost
	}
	switch token {
	case "":
		token = s.token
	case "-":
		token = ""
	}
	bare := strings.TrimPrefix(s.token, "Bearer ")
	path, body := strings.ReplaceAll(a.path, "TOKEN", bare), strings.ReplaceAll(a.body, "TOKEN", bare)
	got := g.ask(method, s.url+path, token, body, append(append(s.headers(), "X-Odd", "attempt"), a.headers...)...)
	challenge := got.header.Get("WWW-Authenticate")
	switch {
	case got.status != a.status:
		g.t.Errorf("got %d %s, want %d", got.status, got.message, a.status)
	case a.challenge == "-" && challenge != "":
		g.t.Errorf("the challenge is %s, want none", challenge)
	case a.challenge != "-" && !strings.Contains(challenge, a.challenge):
		g.t.Errorf("the challenge is %q, want %q", challenge, a.challenge)
	case !strings.Contains(got.message, a.message):
		g.t.Errorf("the answer is %s, want %s in it", got.message, a.message)
	case strings.Contains(got.message, bare):
		g.t.Errorf("the answer has the token: %s", got.message)
	}
}

// Two Authorization headers, of which a server and the adapter could each read another.
func TestTwoTokens(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	_, url := startAdapter(t, g.guarded(nil))
	for name, second := range map[string]string{"the same": g.token("alice", nil), "of another user": g.token("root", nil), "empty": ""} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(initializeMessage))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Authorization": {g.token("alice", nil), second}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := response.Header.Get("WWW-Authenticate"); response.StatusCode != 400 || got != `Bearer error="invalid_request"` {
			t.Errorf("%s: %s, challenge %s", name, response.Status, got)
		}
	}
}

// The rules go by the body. A header that says something else is an error by itself.
func TestHeadersOfStatelessClientsDoNotCount(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	server := &scripted{stateless: true}
	_, process := startAdapter(t, g.guarded(nil))
	for name, url := range map[string]string{"an HTTP server": startScripted(t, g, server, config.StreamableHTTP), "a process, translated": process} {
		s := &statelessSpeaker{g, url, g.token("alice", nil)}
		for _, test := range []struct {
			header, body string
			want         []int
		}{
			{"echo", "echo", []int{200}}, {"secret", "secret", []int{403}}, {"echo", "secret", []int{400, 403}}, {"secret", "echo", []int{400}}, {"", "secret", []int{400, 403}},
		} {
			got := s.askNamed(test.header, "tools/call", `"name":"`+test.body+`","arguments":{"text":"x"}`)
			if !slices.Contains(test.want, got.status) {
				t.Errorf("%s: header %q and body %q: %d %s, want one of %v", name, test.header, test.body, got.status, got.message, test.want)
			}
		}
	}
}

// Clients with sessions have no such headers, so a server gets none that no rule was asked about.
func TestHeadersOfOtherRevisionsStayInTheAdapter(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	server := &scripted{sessionsOnly: true}
	url := startScripted(t, g, server, config.StreamableHTTP)
	s := &sessionSpeaker{guard: g, url: url, token: g.token("alice", nil), revision: "2025-11-25"}
	if status := s.open(); status != 200 {
		t.Fatalf("alice connects: %d", status)
	}
	got := g.ask(http.MethodPost, url, s.token, callOf(`"name":"echo"`), append(s.headers(), "X-Odd", "header", "Mcp-Name", "secret", "Mcp-Method", "tools/call")...)
	if got.status != 200 {
		t.Errorf("alice calls: %d %s", got.status, got.message)
	}
	for _, got := range server.take() {
		if got.header.Get("X-Odd") != "" && (got.header.Get("Mcp-Name") != "" || got.header.Get("Mcp-Method") != "") {
			t.Errorf("the server gets %v", got.header)
		}
	}
}

// The client's token and cookies stay in the adapter.
func TestTokensStayInTheAdapter(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	for name, stateless := range map[string]bool{"sessions": false, "2026-07-28": true} {
		for _, kind := range []string{"session", "stateless"} {
			server := &scripted{stateless: stateless, sessionsOnly: !stateless, odd: map[string]func(http.ResponseWriter, *http.Request, string){}}
			url := startScripted(t, g, server, config.StreamableHTTP)
			token := g.token("alice", nil)
			s := speakers[kind](g, url, token)
			if status := s.open(); status != 200 {
				t.Fatalf("alice connects: %d", status)
			}
			if got := s.ask("tools/call", `"name":"echo","arguments":{}`); got.status != 200 {
				t.Errorf("alice calls: %d %s", got.status, got.message)
			}
			if in, ok := s.(*sessionSpeaker); ok {
				for _, method := range []string{http.MethodGet, http.MethodDelete} {
					g.ask(method, url, token, "", append(in.headers(), "Cookie", "a=crumbs")...)
				}
			}
			g.checkNoToken(name+", and a client with a "+kind, strings.TrimPrefix(token, "Bearer "), server.take())
		}
	}
}

func (g *guard) checkNoToken(what, token string, all []received) {
	g.t.Helper()
	called := false
	for _, got := range all {
		text := fmt.Sprint(got.query, got.body, got.header)
		if strings.Contains(text, token) || strings.Contains(text, "crumbs") || strings.Contains(text, "Authorization") {
			g.t.Errorf("a server with %s gets %s %s", what, got.method, text)
		}
		called = called || strings.Contains(text, `"tools/call"`)
	}
	if !called {
		g.t.Errorf("a server with %s gets no call", what)
	}
}

// No process finds a token in its environment or in what it reads.
func TestTokensDoNotReachProcesses(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	heard := t.TempDir() + "/heard"
	_, url := startAdapterOn(t, newListener(t), g.guarded(nil), "/bin/sh", "-c", `env >> "$1"; tee -a "$1" | "$2"`, "sh", heard, matrixServer)
	token := g.token("alice", nil)
	for _, kind := range []string{"session", "stateless"} {
		s := speakers[kind](g, url, token)
		if status := s.open(); status != 200 {
			t.Fatalf("alice connects: %d", status)
		}
		if got := s.ask("tools/call", `"name":"echo","arguments":{"text":"was heard"}`); !strings.Contains(got.message, "was heard") {
			t.Fatalf("alice calls: %s", got.message)
		}
	}
	data, err := os.ReadFile(heard)
	text := string(data)
	if err != nil || !strings.Contains(text, "was heard") {
		t.Fatalf("the process hears %s, %v", text, err)
	}
	if strings.Contains(text, strings.TrimPrefix(token, "Bearer ")) || strings.Contains(text, "Bearer") {
		t.Errorf("the process hears the token: %s", text)
	}
}
