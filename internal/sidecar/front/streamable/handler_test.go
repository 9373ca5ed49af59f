package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
)

const (
	ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	echo = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}`
)

// Every way to do it wrong has its own answer, with a JSON-RPC error in it, and
// none disturbs the session that is open beside it.
func TestRefusals(t *testing.T) {
	e := newEndpoint(t, nil, bodies(1<<10, time.Hour))
	id := e.openSession(revision20251125)
	full := map[string]string{"Content-Type": typeJSON, "Accept": typeJSON + "," + typeEvents}
	with := func(extra ...string) map[string]string {
		headers := maps.Clone(full)
		for i := 0; i < len(extra); i += 2 {
			headers[extra[i]] = extra[i+1]
		}
		return headers
	}
	for name, test := range map[string]struct {
		method, body string
		headers      map[string]string
		status       int
		want         string
	}{
		"T-16 no session id":             {"POST", ping, with(), 400, `"id":1,"error":{"code":-32600`},
		"T-16 no session id, DELETE":     {"DELETE", "", with(), 400, `{"jsonrpc":"2.0","error":`},
		"T-17 R20 unknown session":       {"POST", ping, with(headerSession, "nope"), 404, "-32600"},
		"T-17 unknown, accepts JSON":     {"POST", ping, with(headerSession, "nope", "Accept", typeJSON), 404, "never was"},
		"T-17 unknown, odd revision":     {"POST", ping, with(headerSession, "nope", headerRevision, "1999-01-01"), 404, "never was"},
		"T-17 unknown, stateless":        {"POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, with(headerSession, "nope"), 404, "never was"},
		"T-17 unknown session, GET":      {"GET", "", with(headerSession, "nope"), 404, "-32600"},
		"T-17 unknown session, DELETE":   {"DELETE", "", with(headerSession, "nope"), 404, "-32600"},
		"R19 hostile session id":         {"POST", ping, with(headerSession, strings.Repeat("__proto__", 400)), 404, "-32600"},
		"J-13 not JSON":                  {"POST", `{"jsonrpc"`, with(headerSession, id), 400, "-32700"},
		"J-13 not a message":             {"POST", `{}`, with(headerSession, id), 400, "-32600"},
		"J-09 batch":                     {"POST", `[` + ping + `]`, with(headerSession, id), 400, "2025-03-26 only"},
		"empty body":                     {"POST", ``, with(headerSession, id), 400, "-32700"},
		"T-03 other content type":        {"POST", ping, with(headerSession, id, "Content-Type", "text/plain"), 415, typeJSON},
		"T-03 accepts JSON only":         {"POST", ping, with(headerSession, id, "Accept", typeJSON), 406, typeEvents},
		"T-03 accepts events only":       {"GET", "", with(headerSession, id, "Accept", typeJSON), 406, typeEvents},
		"T-19 unknown revision":          {"POST", ping, with(headerSession, id, headerRevision, "1999-01-01"), 400, "2025-11-25"},
		"T-29 initialize in a session":   {"POST", fmt.Sprintf(initializeBody, revision20251125), with(headerSession, id), 400, `"id":0,"error":{"code":-32600,"message":"initialize opens a new session, and the one that the Mcp-Session-Id header names is open: leave the header out`},
		"T-24 unknown event":             {"GET", "", with(headerSession, id, headerLastEventID, "9_9"), 400, "not kept"},
		"R38 body too large":             {"POST", strings.Repeat(" ", 1025), with(headerSession, id), 413, "1024 bytes"},
		"R17 HEAD":                       {"HEAD", "", with(headerSession, id), 405, ""},
		"R17 PUT":                        {"PUT", "", with(headerSession, id), 405, "POST, GET and DELETE"},
		"R17 OPTIONS":                    {"OPTIONS", "", with(headerSession, id), 405, "POST, GET and DELETE"},
		"R17 PATCH":                      {"PATCH", ping, with(headerSession, id), 405, "POST, GET and DELETE"},
		"R17 TRACE":                      {"TRACE", "", with(headerSession, id), 405, "POST, GET and DELETE"},
		"R17 an unknown method":          {"BREW", ping, with(headerSession, id), 405, "POST, GET and DELETE"},
		"T-02 evil origin":               {"POST", ping, with(headerSession, id, "Origin", "http://evil.example.com"), 403, `the origin \"http://evil.example.com\" is not allowed here: allowed origins are configured on the server`},
		"X-04 evil host":                 {"POST", ping, with(headerSession, id, "Host", "evil.example.com"), 403, "evil.example.com"},
		"L-22 stateless request":         {"POST", `{"jsonrpc":"2.0","id":"m","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, with(), 400, `"id":"m","error":{"code":-32022,"message":"unsupported protocol version","data":{"supported":["2024-11-05","2025-03-26","2025-06-18","2025-11-25"],"requested":"2026-07-28"}}`},
		"stateless request in a session": {"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, with(headerSession, id), 400, "-32022"},
		"J-02 null id":                   {"POST", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, with(headerSession, id), 400, "-32600"},
		"line break inside a string":     {"POST", "{\"jsonrpc\":\"2.0\",\"method\":\"a\nb\"}", with(headerSession, id), 400, "-32700"},
	} {
		t.Run(name, func(t *testing.T) {
			response := e.do(test.method, test.body, test.headers)
			body := bodyOf(t, response)
			if response.StatusCode != test.status || !strings.Contains(body, test.want) {
				t.Errorf("got %s: %s\nwant %d with %q", response.Status, body, test.status, test.want)
			}
			if test.method != "HEAD" && !strings.HasPrefix(body, `{"jsonrpc":"2.0",`) {
				t.Errorf("the body is no JSON-RPC error: %s", body)
			}
		})
	}
	if body := bodyOf(t, e.post(id, ping)); body != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("afterwards ping answers %s", body)
	}
	if seen := e.server().lines(); strings.Count(seen, "\n") != 2 {
		t.Errorf("S-04: the server was sent more than initialize, initialized and ping:\n%s", seen)
	}
}

// T-05: an answer that comes first is one JSON body.
func TestCallIsAnsweredAsJSON(t *testing.T) {
	e := newEndpoint(t, nil)
	id := e.openSession(revision20251125)
	response := e.post(id, echo)
	body := bodyOf(t, response)
	if response.Header.Get("Content-Type") != typeJSON || response.ContentLength != int64(len(body)) || !strings.Contains(body, `"text":"hello"`) {
		t.Errorf("got %s (%d bytes): %s", response.Header.Get("Content-Type"), response.ContentLength, body)
	}
	if response.Header.Get(headerSession) != "" {
		t.Error("the session id is repeated")
	}
}

// R28, T-07: progress and the server's requests travel on the call's own stream.
func TestCallIsAnsweredAsStream(t *testing.T) {
	for revision, primed := range map[string]bool{revision20250326: false, revision20250618: false, revision20251125: true} {
		t.Run(revision, func(t *testing.T) {
			e := newEndpoint(t, nil)
			id := e.openSession(revision)
			response := e.post(id, `{"jsonrpc":"2.0","id":"p","method":"tools/call","params":{"name":"progress","_meta":{"progressToken":"tok"}}}`)
			if got := response.Header.Get("Content-Type"); got != typeEvents {
				t.Fatalf("content type %q", got)
			}
			next := events(response.Body)
			var got []event
			for {
				event, err := next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("read: %v", err)
				}
				got = append(got, event)
			}
			if (got[0].data == "") != primed {
				t.Errorf("T-22 T-23: first event %+v, want priming: %v", got[0], primed)
			}
			if primed {
				got = got[1:]
			}
			if len(got) != 4 || !strings.Contains(got[3].data, `"id":"p","result"`) {
				t.Fatalf("got %+v, want three times progress and the answer", got)
			}
			for i, event := range got {
				if event.id == "" || i < 3 && !strings.Contains(event.data, `"progressToken":"tok"`) {
					t.Errorf("event %d: %+v", i, event)
				}
			}
		})
	}
}

// T-21, T-08: the connection breaks during a call; the client resumes and gets the rest.
func TestResumeACall(t *testing.T) {
	e := newEndpoint(t, nil)
	id := e.openSession(revision20251125)
	ctx, breakOff := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url,
		strings.NewReader(`{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":"ask"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": typeJSON, "Accept": "*/*", headerSession: id} {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	next := events(response.Body)
	prime, err := next()
	if err != nil || prime.id == "" {
		t.Fatalf("first event %+v: %v", prime, err)
	}
	question, err := next()
	if err != nil || question.id == "" || !strings.Contains(question.data, "elicitation/create") {
		t.Fatalf("second event %+v: %v", question, err)
	}
	breakOff()
	_ = response.Body.Close()

	// The server asked with an id of its own, which the answer must carry.
	_, rest, _ := strings.Cut(question.data, `"id":`)
	asked, _, _ := strings.Cut(rest, ",")
	answer := e.post(id, `{"jsonrpc":"2.0","id":`+asked+`,"result":{"action":"accept","content":{}}}`)
	if answer.StatusCode != http.StatusAccepted {
		t.Fatalf("answer: %s: %s", answer.Status, bodyOf(t, answer))
	}

	var resumed *http.Response
	gomega.NewWithT(t).Eventually(func() int { // until the adapter has noticed that the client has gone
		resumed = e.do("GET", "", map[string]string{"Accept": typeEvents, headerSession: id, headerLastEventID: question.id})
		return resumed.StatusCode
	}).WithTimeout(hang.Guard).Should(gomega.Equal(http.StatusOK))
	next = events(resumed.Body)
	for {
		event, err := next()
		if err != nil {
			t.Fatalf("the answer did not come: %v", err)
		}
		if strings.Contains(event.data, `"id":"q","result"`) && strings.Contains(event.data, "accept") {
			break
		}
		if strings.Contains(event.data, "elicitation") {
			t.Errorf("the question came again: %+v", event)
		}
	}
	if seen := e.server().lines(); strings.Contains(seen, "cancelled") {
		t.Errorf("T-08: the server was told of a cancellation:\n%s", seen)
	}
}

// R32, R33: a stream answers at once and stays alive while nothing happens.
func TestGeneralStream(t *testing.T) {
	e := newEndpoint(t, nil)
	id := e.openSession(revision20251125)
	response := e.do("GET", "", map[string]string{"Accept": typeEvents, headerSession: id})
	if response.StatusCode != http.StatusOK || response.Header.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("got %s %v", response.Status, response.Header)
	}
	buffer := make([]byte, 4096)
	var got string
	for !strings.Contains(got, ": keep-alive") {
		n, err := response.Body.Read(buffer)
		if err != nil {
			t.Fatalf("read after %q: %v", got, err)
		}
		got += string(buffer[:n])
	}
	if again := e.do("GET", "", map[string]string{"Accept": typeEvents, headerSession: id}); again.StatusCode != http.StatusOK {
		t.Errorf("R16 a second stream: %s", again.Status)
	}
	if deleted := e.do("DELETE", "", map[string]string{headerSession: id}); deleted.StatusCode != http.StatusNoContent {
		t.Errorf("T-18 delete: %s", deleted.Status)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Errorf("the stream does not end with its session: %v", err)
	}
	if after := e.post(id, ping); after.StatusCode != http.StatusNotFound {
		t.Errorf("T-18 afterwards: %s", after.Status)
	}
}

// J-07, J-11: revision 2025-03-26 has batches.
func TestBatch(t *testing.T) {
	e := newEndpoint(t, nil)
	id := e.openSession(revision20250326)
	response := e.post(id, `[{"jsonrpc":"2.0","id":1,"method":"ping"}, {"jsonrpc":"2.0","method":"notifications/x"}, {"jsonrpc":"2.0","id":"2","method":"ping"}]`)
	body := bodyOf(t, response)
	for _, want := range []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":"2","result":{}}`} {
		if !strings.Contains(body, want) {
			t.Errorf("got %s, want %s in it", body, want)
		}
	}
	if got := e.post(id, `[{"jsonrpc":"2.0","method":"notifications/x"}]`); got.StatusCode != http.StatusAccepted {
		t.Errorf("only notifications: %s", got.Status)
	}
	if got := e.post(id, `[`+fmt.Sprintf(initializeBody, revision20250326)+`]`); got.StatusCode != http.StatusBadRequest {
		t.Errorf("J-08 initialize in a batch: %s", got.Status)
	}
}

// T-27: when the server goes, its calls are answered and its session is gone.
func TestServerGoesAway(t *testing.T) {
	e := newEndpoint(t, nil)
	id := e.openSession(revision20251125)
	answered := make(chan string)
	go func() {
		answered <- bodyOf(t, e.post(id, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"wait"}}`))
	}()
	gomega.NewWithT(t).Eventually(func() string { return e.server().lines() }).WithTimeout(hang.Guard).Should(gomega.ContainSubstring(`"wait"`))
	e.server().Close()
	if body := <-answered; !strings.Contains(body, `"id":7,"error":{"code":-32603,"message":"the server went away"`) {
		t.Errorf("the call was answered %s", body)
	}
	if after := e.post(id, ping); after.StatusCode != http.StatusNotFound {
		t.Errorf("afterwards: %s", after.Status)
	}
	e.openSession(revision20251125) // R10: a new one works
}

func TestSessionLimit(t *testing.T) {
	e := newEndpoint(t, nil)
	for range 8 {
		e.openSession(revision20251125)
	}
	response := e.post("", fmt.Sprintf(initializeBody, revision20251125))
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("one session too many: %s %v", response.Status, response.Header)
	}
}

// T-15: a server that refuses leaves no session.
func TestFailedInitialize(t *testing.T) {
	e := newEndpoint(t, nil)
	response := e.post("", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":7}}`)
	body := bodyOf(t, response)
	if response.Header.Get(headerSession) != "" || !strings.Contains(body, `"error"`) || e.registry.Len() != 0 {
		t.Errorf("got %v %s, %d sessions", response.Header, body, e.registry.Len())
	}
}

// R43: what the client wrote is what the server reads, to the byte.
func TestBytesArePassedOn(t *testing.T) {
	e := newEndpoint(t, nil)
	id := e.openSession(revision20251125)
	const odd = `{"id" : 9007199254740993 , "x":1.50e+3,"jsonrpc":"2.0","method":"vendor/method","params":{"b":"\u00e9\/` + "\u00a0\u200d\u3000" + `","a":12345678901234567890}}`
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, strings.NewReader(odd))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": typeJSON, "Accept": "*/*", headerSession: id} {
		request.Header.Set(name, value)
	}
	left := make(chan struct{})
	go func() { // the server answers under another id, so that the client waits until it leaves
		defer close(left)
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	gomega.NewWithT(t).Eventually(func() string { return e.server().lines() }).WithTimeout(hang.Guard).Should(gomega.ContainSubstring(`vendor`))
	if !strings.Contains(e.server().lines(), odd) {
		t.Errorf("the server did not get it as it was:\n%s", e.server().lines())
	}
	leave()
	<-left
}

// The official client, at each revision, with everything that a call can do.
func TestOfficialClient(t *testing.T) {
	for _, revision := range []string{revision20250326, revision20250618, revision20251125} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			e := newEndpoint(t, nil)
			progress := make(chan struct{}, 16)
			client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
				ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: "decline"}, nil
				},
				ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { progress <- struct{}{} },
			})
			connected, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: e.url}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
			if err != nil {
				t.Fatalf("connect: %v", err)
			}
			tools, err := connected.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) != 4 {
				t.Fatalf("tools: %v %v", tools, err)
			}
			call := func(name, text string) string {
				t.Helper()
				params := &mcp.CallToolParams{Name: name, Arguments: echoInput{Text: text}}
				params.SetProgressToken(name)
				result, err := connected.CallTool(t.Context(), params)
				if err != nil || len(result.Content) != 1 {
					t.Fatalf("call %s: %v %v", name, result, err)
				}
				return result.Content[0].(*mcp.TextContent).Text
			}
			size := 1 << 10
			if revision == revision20251125 {
				size = 1 << 16 // R37: 1 MiB; once, since the official client takes long for it
			}
			large := strings.Repeat("0123456789abcdef", size)
			if got := call("echo", large); got != large {
				t.Errorf("echo returned %d bytes, want %d", len(got), len(large))
			}
			if got := call("progress", ""); got != "done" {
				t.Errorf("progress: %q", got)
			}
			for range 3 {
				<-progress
			}
			if revision != revision20250326 { // elicitation came with 2025-06-18
				if got := call("ask", ""); got != "decline" {
					t.Errorf("ask: %q", got)
				}
			}
			if err := connected.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if e.registry.Len() != 0 {
				t.Errorf("%d sessions are left", e.registry.Len())
			}
		})
	}
}
