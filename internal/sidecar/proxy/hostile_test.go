package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/test/hang"
)

// Every way to do it wrong has its own answer, with a JSON-RPC error in it, and
// reaches neither the server nor the session that is open beside it.
func TestRefusals(t *testing.T) {
	b := newBackend(t, streamableServer(nil))
	e := newEndpoint(t, b, func(o *Options) { o.AnswerBytes = 1 << 10 }, func(o *edge.Options) { o.Budget = edgetest.Bodies(edge.BodyLimits{BodyBytes: 1 << 10}) })
	id := e.Open()
	for name, test := range map[string]struct {
		method, body string
		headers      []string
		status       int
		want         string
	}{
		"T-17 R20 unknown session":     {"POST", ping, []string{headerSession, "nope"}, 404, "-32600"},
		"T-17 unknown session, GET":    {"GET", "", []string{headerSession, "nope"}, 404, "-32600"},
		"T-17 unknown session, DELETE": {"DELETE", "", []string{headerSession, "nope"}, 404, "-32600"},
		"T-16 DELETE of nothing":       {"DELETE", "", nil, 400, "-32600"},
		"R19 hostile session id":       {"POST", ping, []string{headerSession, strings.Repeat("__proto__", 400)}, 404, "-32600"},
		"two session ids":              {"POST", ping, []string{headerSession, id, headerSession, "other"}, 400, "more than once"},
		"two revisions":                {"POST", ping, []string{headerSession, id, headerRevision, "a", headerRevision, "b"}, 400, "more than once"},
		"S-04 J-13 not JSON":           {"POST", `{"jsonrpc"`, []string{headerSession, id}, 400, "-32700"},
		"J-13 not a message":           {"POST", `{}`, []string{headerSession, id}, 400, "-32600"},
		"S-04 broken batch":            {"POST", `[` + ping + `,]`, []string{headerSession, id}, 400, "-32700"},
		"S-04 bad message in a batch":  {"POST", `[` + ping + `,{}]`, []string{headerSession, id}, 400, "-32600"},
		"J-08 initialize in a batch":   {"POST", `[` + initializeBody + `]`, nil, 400, "batch"},
		"R54 era in a batch":           {"POST", `[` + ping + `,{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}]`, []string{headerSession, id}, 400, "stateless"},
		"R54 batch, no session":        {"POST", `[` + ping + `]`, []string{headerSession, "nope"}, 404, "-32600"},
		"empty body":                   {"POST", ``, []string{headerSession, id}, 400, "-32700"},
		"T-03 other content type":      {"POST", ping, []string{headerSession, id, "Content-Type", "text/plain"}, 415, typeJSON},
		"encoded body":                 {"POST", ping, []string{headerSession, id, "Content-Encoding", "gzip"}, 415, "Content-Encoding"},
		"T-29 initialize in a session": {"POST", initializeBody, []string{headerSession, id}, 400, `"id":0`},
		"R38 body too large":           {"POST", strings.Repeat(" ", 1025), []string{headerSession, id}, 413, "1024 bytes"},
		"R17 HEAD":                     {"HEAD", "", []string{headerSession, id}, 405, ""},
		"R17 PUT":                      {"PUT", "", []string{headerSession, id}, 405, "POST, GET and DELETE"},
		"T-02 evil origin":             {"POST", ping, []string{headerSession, id, "Origin", "http://evil.example"}, 403, "evil.example"},
		"X-04 R53 evil host":           {"POST", ping, []string{headerSession, id, "Host", "evil.example"}, 403, "evil.example"},
		"J-02 null id":                 {"POST", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, []string{headerSession, id}, 400, "-32600"},
	} {
		t.Run(name, func(t *testing.T) {
			response := e.Do(test.method, test.body, test.headers...)
			body := text(t, response)
			if response.StatusCode != test.status || !strings.Contains(body, test.want) {
				t.Errorf("got %s: %s\nwant %d with %q", response.Status, body, test.status, test.want)
			}
			if test.method != "HEAD" && !strings.HasPrefix(body, `{"jsonrpc":"2.0",`) {
				t.Errorf("the body is no JSON-RPC error: %s", body)
			}
		})
	}
	if got := e.Do("POST", ping, headerSession, id); got.StatusCode != 200 {
		t.Errorf("afterwards: %s", got.Status)
	}
	if got := len(b.Requests("POST")); got != 2 {
		t.Errorf("S-04: the server saw %d POST, want initialize and ping", got)
	}
	// A body without a length is limited too.
	request, err := http.NewRequestWithContext(t.Context(), "POST", e.URL, io.MultiReader(strings.NewReader(strings.Repeat(" ", 2000))))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", typeJSON)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("R38 chunked: %s", response.Status)
	}
}

// The server sees a request that it cannot take offence at.
func TestHeadersTowardsServer(t *testing.T) {
	b := newBackend(t, streamableServer(nil))
	e := newEndpoint(t, b, nil)
	id := e.Open("Authorization", "Bearer token")
	e.URL += "?key=value"
	response := e.Do("POST", ping, headerSession, id, "Host", "mcp.example", "Origin", "https://chat.example", "Sec-Fetch-Site", "cross-site",
		"X-Forwarded-For", "6.6.6.6", "X-Forwarded-Host", "evil.example", "Forwarded", "for=6.6.6.6", "X-Real-Ip", "6.6.6.6", "Mcp_Session_Id", "x",
		"Connection", "X-Hop, Keep-Alive", "X-Hop", "1", "Keep-Alive", "1", "Te", "trailers", "Proxy-Authorization", "secret",
		"Accept-Encoding", "gzip", "Authorization", "Bearer token", "Mcp-Param-A", "b", "Content-Type", "application/json; charset=utf-16")
	if response.StatusCode != 200 {
		t.Fatalf("R53: got %s: %s", response.Status, text(t, response))
	}
	got := b.Requests("POST")[1]
	if got.Host != b.Address || got.Query != "key=value" {
		t.Errorf("host %q, query %q", got.Host, got.Query)
	}
	for name, want := range map[string]string{
		"Origin": "", "Sec-Fetch-Site": "", "X-Forwarded-Host": "", "Forwarded": "", "X-Real-Ip": "", "Mcp_Session_Id": "", "X-Hop": "", "Keep-Alive": "",
		"Te": "", "Proxy-Authorization": "", "Connection": "",
		"X-Forwarded-For": "127.0.0.1", "Authorization": "Bearer token", "Mcp-Param-A": "b", "Content-Type": typeJSON, "Accept-Encoding": "identity",
	} {
		if value := got.Header.Get(name); value != want {
			t.Errorf("%s: the server sees %q, want %q", name, value, want)
		}
	}
	if serverID := got.Header.Get(headerSession); serverID == "" || serverID == id {
		t.Errorf("the server is told session %q", serverID)
	}
	if response.Header.Get(headerSession) != "" {
		t.Error("the session id is repeated")
	}
}

// Hostile and broken servers do not harm the adapter, and their clients learn what is wrong.
func TestHostileServer(t *testing.T) {
	agreed := `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`
	for name, test := range map[string]struct {
		answer string
		status int
		want   string
	}{
		"redirect":             {"HTTP/1.1 307 Temporary Redirect\r\nLocation: /mcp/\r\nContent-Length: 0\r\n\r\n", 502, `redirection to \"/mcp/\"`},
		"switches protocols":   {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", 502, "101"},
		"not HTTP":             {"SSH-2.0-OpenSSH\r\n\r\n", 502, "-32603"},
		"nothing":              {"", 502, "-32603"},
		"endless header":       {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20), 502, "-32603"},
		"many 1xx":             {strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: "+strings.Repeat("x", 1000)+"\r\n\r\n", 1000), 502, "-32603"},
		"id too long":          {ok(typeJSON, agreed, headerSession+": "+strings.Repeat("x", 5000)+"\r\n"), 502, "id of the session is too long"},
		"id with a blank":      {ok(typeJSON, agreed, headerSession+": a b\r\n"), 502, "characters"},
		"T-15 error, with id":  {ok(typeJSON, `{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no"}}`, headerSession+": abc\r\n"), 200, "-32602"},
		"T-15 no JSON, id":     {ok("text/html", "<html>", headerSession+": abc\r\n"), 200, "<html>"},
		"T-15 stream, error":   {ok(typeEvents, "data: {\"jsonrpc\":\"2.0\",\"id\":0,\"error\":{\"code\":-32602,\"message\":\"no\"}}\n\n", headerSession+": abc\r\n"), 200, "-32602"},
		"T-15 stream, nothing": {ok(typeEvents, ": hello\n\n", headerSession+": abc\r\n"), 200, "hello"},
		"401":                  {"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\n" + headerSession + ": abc\r\nContent-Length: 0\r\n\r\n", 401, ""},
		"T-05 stream, agreed":  {ok(typeEvents, ": hi\r\n\r\nevent: message\r\ndata: "+agreed+"\r\n\r\n", headerSession+": abc\r\n"), 200, agreed},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, newBackend(t, script(test.answer)), nil)
			response := e.Do("POST", initializeBody)
			body := text(t, response)
			if response.StatusCode != test.status || !strings.Contains(body, test.want) {
				t.Errorf("got %s: %s\nwant %d with %q", response.Status, rpc.Clip(body), test.status, test.want)
			}
			want := 0
			if strings.Contains(name, "agreed") {
				want = 1
			}
			if e.proxy.Sessions.Len() != want || (response.Header.Get(headerSession) != "") != (want == 1) || strings.Contains(response.Header.Get(headerSession), "abc") {
				t.Errorf("%d sessions, id %q", e.proxy.Sessions.Len(), response.Header.Get(headerSession))
			}
		})
	}
}

// An id for something that opens no session is not passed on, and not left behind.
func TestStrayServerID(t *testing.T) {
	b := newBackend(t, script(ok(typeJSON, `{"jsonrpc":"2.0","id":1,"result":{}}`, headerSession+": stray\r\n")))
	e := newEndpoint(t, b, nil)
	if got := e.Do("POST", ping); got.StatusCode != 200 || got.Header.Get(headerSession) != "" {
		t.Errorf("got %s, id %q", got.Status, got.Header.Get(headerSession))
	}
	if got := b.Requests("DELETE"); len(got) != 1 || got[0].Header.Get(headerSession) != "stray" {
		t.Errorf("DELETE: %v", got)
	}
}

// gate is a server whose answers to calls wait until they are let go.
type gate struct {
	entered  chan string // methods of requests
	let      chan struct{}
	messages chan string
}

func newGate() *gate {
	return &gate{entered: make(chan string, 64), let: make(chan struct{}), messages: make(chan string, 64)}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch {
	case strings.Contains(string(body), `"initialize"`):
		w.Header().Set(headerSession, "gated")
		w.Header().Set("Content-Type", typeJSON)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`)
	case strings.Contains(string(body), "notifications/"):
		g.messages <- string(body)
		w.WriteHeader(http.StatusAccepted)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	default:
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", typeEvents)
			_ = http.NewResponseController(w).Flush()
		}
		g.entered <- r.Method
		select {
		case <-g.let:
		case <-r.Context().Done():
			g.messages <- "disconnected"
		}
	}
}

// T-26, L-07, R51: a call has its time, and the server is told when it is over.
func TestCallTimeout(t *testing.T) {
	// On a busy machine the time may be over before the server has the call.
	for timeout := 50 * time.Millisecond; !callTimesOut(t, timeout); timeout *= 2 {
	}
}

// callTimesOut has a call time out, and says whether the server had it by then.
func callTimesOut(t *testing.T, timeout time.Duration) bool {
	t.Helper()
	g := newGate()
	e := newEndpoint(t, newBackend(t, g), func(o *Options) { o.CallTimeout = timeout })
	id := e.Open()
	got := e.Do("POST", `{"jsonrpc":"2.0","id":"x","method":"slow"}`, headerSession, id)
	want := fmt.Sprintf(`"id":"x","error":{"code":-32603,"message":"the call took longer than %v"`, timeout)
	if body := text(t, got); got.StatusCode != 200 || !strings.Contains(body, want) {
		t.Fatalf("got %s: %s", got.Status, body)
	}
	if e.proxy.Metrics.Timeouts.Value() != 1 || e.proxy.Sessions.Len() != 1 {
		t.Errorf("%d time-outs, %d sessions", e.proxy.Metrics.Timeouts.Value(), e.proxy.Sessions.Len())
	}
	if len(g.entered) == 0 {
		return false
	}
	told := []string{within(t, "end", g.messages), within(t, "end", g.messages)}
	if !strings.Contains(strings.Join(told, " "), `"requestId":"x"`) || !strings.Contains(strings.Join(told, " "), "disconnected") {
		t.Errorf("the server was told %q", told)
	}
	return true
}

// Every count has its limit, and a client that reaches one does not disturb clients that stay below it.
func TestLimits(t *testing.T) {
	g := newGate()
	e := newEndpoint(t, newBackend(t, g), func(o *Options) {
		o.Sessions, o.Calls, o.Streams, o.Single = newRegistry(1, time.Hour), 1, 1, 1
	})
	id := e.Open()
	full := e.Do("POST", initializeBody)
	if body := text(t, full); full.StatusCode != 503 || full.Header.Get("Retry-After") == "" || !strings.Contains(body, `"id":0`) || !strings.Contains(body, "slot") {
		t.Errorf("sessions: %s: %s", full.Status, body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	background := func(method string, headers ...string) {
		request, err := http.NewRequestWithContext(ctx, method, e.URL, strings.NewReader(ping))
		if err != nil {
			t.Error(err)
			return
		}
		request.Header.Set("Content-Type", typeJSON)
		for i := 0; i < len(headers); i += 2 {
			request.Header.Set(headers[i], headers[i+1])
		}
		go func() {
			if response, err := http.DefaultClient.Do(request); err == nil {
				_ = response.Body.Close()
			}
		}()
		within(t, method, g.entered)
	}
	background("POST", headerSession, id)
	background("POST")
	stream := e.DoContext(ctx, "GET", "", headerSession, id)
	within(t, "GET", g.entered)
	for name, test := range map[string]struct {
		response *http.Response
		status   int
	}{
		"calls":   {e.Do("POST", ping, headerSession, id), 503},
		"single":  {e.Do("POST", ping), 503},
		"streams": {e.Do("GET", "", headerSession, id), 409},
	} {
		if test.response.StatusCode != test.status {
			t.Errorf("%s: %s", name, test.response.Status)
		}
	}
	if got := e.proxy.Metrics.Refused.Value(); got != 4 {
		t.Errorf("%d were refused", got)
	}
	// What was in flight gives its place back, also when its client is just gone.
	cancel()
	_ = stream.Body.Close()
	gomega.NewWithT(t).Eventually(func() bool {
		_, _, idle := e.proxy.Sessions.Find(id).Idle()
		return idle && e.proxy.InFlight() == 0
	}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
	if got := e.Do("DELETE", "", headerSession, id); got.StatusCode != http.StatusNoContent {
		t.Errorf("T-18 DELETE: %s", got.Status)
	}
	e.Open()
}

// T-15: the client goes away during initialize; what the server opened is ended.
func TestClientLeavesDuringInitialize(t *testing.T) {
	arrived, let := make(chan struct{}), make(chan struct{})
	b := newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			close(arrived)
			<-let
			w.Header().Set(headerSession, "orphan")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`)
		}
	}))
	e := newEndpoint(t, b, nil)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		context.AfterFunc(r.Context(), func() { close(let) })
		e.door.ServeHTTP(w, r)
	}))
	defer front.Close()
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintf(connection, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(initializeBody), initializeBody)
	within(t, "initialize", arrived)
	_ = connection.Close()
	gomega.NewWithT(t).Eventually(func() int { return len(b.Requests("DELETE")) }).WithTimeout(hang.Guard).Should(gomega.Equal(1))
	if e.proxy.Sessions.Len() != 0 {
		t.Errorf("%d sessions", e.proxy.Sessions.Len())
	}
}

// R35: servers that have no GET say so in many ways; the session does not end by it.
func TestServerHasNoGET(t *testing.T) {
	g := newGate()
	e := newEndpoint(t, newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.NotFound(w, r)
			return
		}
		g.ServeHTTP(w, r)
	})), nil)
	id := e.Open()
	if got := e.Do("GET", "", headerSession, id); got.StatusCode != http.StatusMethodNotAllowed || e.proxy.Sessions.Len() != 1 {
		t.Errorf("got %s, %d sessions", got.Status, e.proxy.Sessions.Len())
	}
}
