package sidecar

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/test/hang"
)

// againBackends are all kinds of servers whose clients have sessions over Streamable HTTP.
var againBackends = map[string]func(t *testing.T) (url string){
	"a process for each session": func(t *testing.T) string {
		_, url := startAdapter(t, nil)
		return url
	},
	"one process for all": func(t *testing.T) string {
		_, url := startAdapter(t, func(c *config.Config) { c.Shared = true })
		return url
	},
	"translated": func(t *testing.T) string {
		_, url := startAdapterOn(t, newListener(t), func(c *config.Config) { c.Era = sessionless.Modern }, bothServer)
		return url
	},
	"an HTTP server": func(t *testing.T) string {
		_, url := adapterFor(t, &httpServer{initialize: func(w http.ResponseWriter, r *http.Request, id string) {
			if got := r.Header.Get(sessionHeader); got != "" {
				t.Errorf("initialize reaches the server with session %q", got)
			}
			agreeToInitialize(w, r, id)
		}}, nil)
		return url
	},
	"an HTTP server, translated": func(t *testing.T) string {
		_, url := adapterFor(t, &httpServer{initialize: refuseInitialize}, nil)
		return url
	},
}

const (
	listMessage = `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`

	neverWas   = "no such session: it has ended or never was; begin again with initialize"
	hasEnded   = "no such session, it has ended: the client ended the session; begin again with initialize"
	isOpen     = "initialize opens a new session, and the one that the Mcp-Session-Id header names is open: leave the header out, or end that session first"
	mostUnread = 64 << 10 // the largest body that the adapter reads of an unknown session
)

// again is one client, whose requests may keep the id of any session.
type again struct {
	t          *testing.T
	url, token string
}

// post sends a body of a known length, or in chunks.
func (a *again) post(sessions []string, body string, chunked bool) (status int, text, opened string) {
	a.t.Helper()
	var from io.Reader = strings.NewReader(body)
	if chunked {
		from = struct{ io.Reader }{from} // whose length net/http does not know
	}
	r, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.url, from)
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", a.token)
	r.Header[sessionHeader] = sessions
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return response.StatusCode, string(all), response.Header.Get(sessionHeader)
}

// opens checks that initialize opens a session, although it names another one.
func (a *again) opens(named, body string) {
	a.t.Helper()
	status, text, opened := a.post([]string{named}, body, false)
	if status != http.StatusOK || opened == "" || opened == named || !strings.Contains(text, `"protocolVersion":`) {
		a.t.Errorf("initialize: %d, session %q: %s", status, opened, text)
		return
	}
	if status, text, _ := a.post([]string{opened}, listMessage, false); status != http.StatusOK || !strings.Contains(text, `"tools":`) {
		a.t.Errorf("the new session: %d: %s", status, text)
	}
	if status, text, _ := a.post([]string{named}, pingMessage, false); status != http.StatusNotFound {
		a.t.Errorf("the session that was named: %d: %s", status, text)
	}
}

// T-17, T-29: initialize opens a new session, although it names one that is over, that never was, or
// that another caller has. In an open session of its own the client is told what to do. All other
// messages of unknown sessions are answered 404, and so are bodies too large for initialize.
func TestInitializeAgain(t *testing.T) {
	t.Parallel()
	for backend, start := range againBackends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			v := &visitor{t, start(t)}
			ended, foreign, own := v.open(bert), v.open(anna), v.open(bert)
			v.want("end", http.StatusNoContent, http.MethodDelete, bert, ended, "")
			sessions := map[string]struct {
				id   string
				text string // of the answer that there is no such session
			}{
				"unknown": {"never-was", neverWas}, "ended": {ended, hasEnded}, "foreign": {foreign, neverWas}, "own": {own, ""},
			}
			messages := map[string]struct {
				text  string
				inOwn int // status in the caller's own session; 0 depends on the server
			}{
				"initialize":   {initializeMessage, http.StatusBadRequest},
				"request":      {listMessage, http.StatusOK},
				"notification": {`{"jsonrpc":"2.0","method":"notifications/initialized"}`, http.StatusAccepted},
				"batch":        {"[" + listMessage + "]", 0},
			}
			bodies := map[string]struct {
				size    int // blanks fill the rest
				chunked bool
			}{
				"small": {}, "as large as may be": {size: mostUnread}, "larger": {size: mostUnread + 1}, "chunked": {chunked: true},
			}
			for named, session := range sessions {
				for kind, message := range messages {
					for form, body := range bodies {
						t.Run(named+", "+kind+", "+form, func(t *testing.T) {
							a := &again{t, v.url, bert}
							text := message.text[:1] + strings.Repeat(" ", max(0, body.size-len(message.text))) + message.text[1:]
							if named != "own" && kind == "initialize" && body.size <= mostUnread && !body.chunked {
								a.opens(session.id, text)
								return
							}
							status, answer, opened := a.post([]string{session.id}, text, body.chunked)
							want, says := http.StatusNotFound, session.text
							if named == "own" {
								if want = message.inOwn; kind == "initialize" {
									says = isOpen
								}
							}
							if want == 0 && status != http.StatusNotFound {
								want = status
							}
							if status != want || !strings.Contains(answer, says) || opened != "" {
								t.Errorf("got %d, session %q: %s\nwant %d: %s", status, opened, answer, want, says)
							}
						})
					}
				}
			}
			v.want("the session of the other caller", http.StatusOK, http.MethodPost, anna, foreign, pingMessage)
			v.want("the caller's own session", http.StatusOK, http.MethodPost, bert, own, pingMessage)
		})
	}
}

// The adapter does not wait for bodies that cannot be an initialize of an unknown session.
func TestLargeBodiesOfUnknownSessionsAreNotRead(t *testing.T) {
	t.Parallel()
	for backend, start := range againBackends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			v := &visitor{t, start(t)}
			foreign := v.open(anna)
			for name, head := range map[string]string{
				"POST, larger": "Content-Length: 65537", "POST, chunked": "Transfer-Encoding: chunked", "POST, empty": "Content-Length: 0",
				"GET": "Content-Length: 0", "DELETE": "Content-Length: 0",
			} {
				for _, session := range []string{"never-was", foreign} {
					method, _, _ := strings.Cut(name, ",")
					if got := unsent(t, v.url, method, session, head); !strings.HasPrefix(got, "HTTP/1.1 404 ") {
						t.Errorf("%s, session %s: %s", name, session, got)
					}
				}
			}
		})
	}
}

// unsent sends the head of a request without its body, and returns the first line of the answer. The
// connection closes after that: otherwise net/http would read the rest of the body first.
func unsent(t *testing.T, to, method, session, head string) string {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", target.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	_ = connection.SetDeadline(time.Now().Add(hang.Guard))
	_, err = io.WriteString(connection, method+" "+Path+" HTTP/1.1\r\nHost: "+target.Host+"\r\nContent-Type: application/json\r\nAuthorization: "+bert+
		"\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\n"+sessionHeader+": "+session+"\r\n"+head+"\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	return line
}

// A request that names two sessions is refused, whether they exist or not. A message of 2026-07-28
// belongs to none, whatever it names.
func TestOddSessionHeaders(t *testing.T) {
	t.Parallel()
	for backend, start := range againBackends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			v := &visitor{t, start(t)}
			a := &again{t, v.url, bert}
			own := v.open(bert)
			for name, sessions := range map[string][]string{"unknown": {"one", "two"}, "own": {own, own}, "mixed": {"one", own}, "nothing first": {"", "one"}} {
				for _, message := range []string{initializeMessage, listMessage} {
					if status, text, opened := a.post(sessions, message, false); status != http.StatusBadRequest || opened != "" || !strings.Contains(text, "more than once") {
						t.Errorf("%s: %d, session %q: %s", name, status, opened, text)
					}
				}
			}
			for name, session := range map[string]string{"unknown": "one", "own": own} {
				status, text, _ := v.do(http.MethodPost, bert, session, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}`,
					"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list")
				if status != http.StatusOK || !strings.Contains(text, `"resultType":"complete"`) {
					t.Errorf("2026-07-28, %s session: %d: %s", name, status, text)
				}
			}
		})
	}
}

// A token that does not say whose it is, and that the server has not accepted in the session, cannot
// end it. Its client gets a new session.
func TestInitializeAgainWithAnOpaqueToken(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"an HTTP server", "an HTTP server, translated"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			v := &visitor{t, againBackends[backend](t)}
			session := v.open("Bearer one")
			v.want("the token that opened the session", http.StatusBadRequest, http.MethodPost, "Bearer one", session, initializeMessage)
			v.want("another token ends the session", http.StatusNotFound, http.MethodDelete, "Bearer two", session, "")
			status, text, header := v.do(http.MethodPost, "Bearer two", session, initializeMessage)
			if opened := header.Get(sessionHeader); status != http.StatusOK || opened == "" || opened == session {
				t.Errorf("another token: %d, session %q: %s", status, opened, text)
			}
			v.want("the first session", http.StatusOK, http.MethodPost, "Bearer one", session, pingMessage)
		})
	}
}

// The id of a session that is over gives no rights: a caller is refused as without it.
func TestInitializeAgainNeedsRights(t *testing.T) {
	t.Parallel()
	for name := range matrixBackends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, nil)
			url := startMatrix(t, g, name)
			for user, want := range map[string]int{"alice": http.StatusOK, "mallory": http.StatusForbidden, "": http.StatusUnauthorized} {
				token := ""
				if user != "" {
					token = g.token(user, nil)
				}
				without := g.ask(http.MethodPost, url, token, initializeMessage)
				got := g.ask(http.MethodPost, url, token, initializeMessage, sessionHeader, "0123456789abcdef")
				if got.status != want || without.status != want {
					t.Errorf("%q: %d, without the header %d, want %d: %s", user, got.status, without.status, want, got.message)
				}
			}
		})
	}
}
