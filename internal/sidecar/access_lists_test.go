package sidecar

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// answerOf is the answer to a list, as JSON-RPC.
func answerOf(id, result string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}`
}

// says answers with a type and a status, whatever they are. ID stands for the id of the request.
func says(status int, contentType, text string) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, _ *http.Request, id string) {
		w.Header()["Content-Type"] = nil
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.ReplaceAll(text, "ID", id))
	}
}

func zipped(w http.ResponseWriter, _ *http.Request, id string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Encoding", "gzip")
	var text bytes.Buffer
	zip := gzip.NewWriter(&text)
	_, _ = io.WriteString(zip, answerOf(id, secretList))
	_ = zip.Close()
	_, _ = w.Write(text.Bytes())
}

const (
	typeJSON   = "application/json"
	typeEvents = "text/event-stream"
	half       = `{"name":"echo"},{"name":"secret"}`
)

// oddLists are lists of HTTP servers that got past the filters of others, or could have. Those that are clear
// are filtered, and all others are errors.
var oddLists = map[string]struct {
	answer func(http.ResponseWriter, *http.Request, string)
	clear  bool
}{
	"answer in events":               {says(200, typeEvents, "data: "+answerOf("ID", secretList)+"\n\n"), true},
	"events with a notification":     {says(200, typeEvents, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\ndata: "+answerOf("ID", secretList)+"\n\n"), true},
	"events, spelled otherwise":      {says(200, "Text/Event-Stream ; charset=utf-8", "data: "+answerOf("ID", secretList)+"\n\n"), true},
	"event of several lines":         {says(200, typeEvents, "data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"tools\":\ndata: ["+half+"]}}\n\n"), true},
	"events with carriage returns":   {says(200, typeEvents, "data: "+answerOf("ID", secretList)+"\r\r"), true},
	"event without an end":           {says(200, typeEvents, "data: "+answerOf("ID", secretList)), false},
	"status 201":                     {says(201, typeJSON, answerOf("ID", secretList)), true},
	"status 203":                     {says(203, typeJSON, answerOf("ID", secretList)), true},
	"status 400":                     {says(400, typeJSON, answerOf("ID", secretList)), true},
	"status 500":                     {says(500, "text/html", "the tools are secret"), false},
	"type text/plain":                {says(200, "text/plain", answerOf("ID", secretList)), true},
	"type is spelled otherwise":      {says(200, "Application/JSON;charset=utf-8", answerOf("ID", secretList)), true},
	"no type":                        {says(200, "", answerOf("ID", secretList)), true},
	"events as JSON":                 {says(200, typeJSON, "data: "+answerOf("ID", secretList)+"\n\n"), false},
	"JSON as events":                 {says(200, typeEvents, answerOf("ID", secretList)+"\n\n"), false},
	"byte order mark":                {says(200, typeJSON, "\ufeff"+answerOf("ID", secretList)), false},
	"byte order mark in events":      {says(200, typeEvents, "data: \ufeff"+answerOf("ID", secretList)+"\n\n"), false},
	"undecodable":                    {says(200, typeJSON, answerOf("ID", secretList)[:120]), false},
	"undecodable event":              {says(200, typeEvents, "data: "+answerOf("ID", secretList)[:120]+"\n\n"), false},
	"two messages":                   {says(200, typeJSON, answerOf("ID", `{}`)+answerOf("ID", secretList)), false},
	"compressed":                     {zipped, false},
	"a batch":                        {says(200, typeJSON, "["+answerOf("ID", secretList)+"]"), false},
	"a request as well":              {says(200, typeJSON, `{"jsonrpc":"2.0","id":ID,"method":"x","result":`+secretList+`}`), false},
	"an error as well":               {says(200, typeJSON, `{"jsonrpc":"2.0","id":ID,"error":{"code":1,"message":"x"},"result":`+secretList+`}`), false},
	"tools twice":                    {says(200, typeJSON, answerOf("ID", `{"tools":[{"name":"echo"}],"tools":[`+half+`]}`)), false},
	"tools in another case":          {says(200, typeJSON, answerOf("ID", `{"tools":[{"name":"echo"}],"Tools":[`+half+`]}`)), false},
	"tools with a control character": {says(200, typeJSON, answerOf("ID", `{"tools":[{"name":"echo"}],"tools\u0000":[`+half+`]}`)), false},
	"tools by an escape":             {says(200, typeJSON, answerOf("ID", `{"tools":[{"name":"echo"}],"t\u006fols":[`+half+`]}`)), false},
	"result twice":                   {says(200, typeJSON, `{"jsonrpc":"2.0","id":ID,"result":{"tools":[]},"result":`+secretList+`}`), false},
	"result in another case":         {says(200, typeJSON, `{"jsonrpc":"2.0","id":ID,"result":{"tools":[]},"Result":`+secretList+`}`), false},
	"tools are an object":            {says(200, typeJSON, answerOf("ID", `{"tools":{"a":{"name":"secret"}}}`)), false},
	"no tools":                       {says(200, typeJSON, answerOf("ID", `{"more":[`+half+`]}`)), false},
	"a name twice":                   {says(200, typeJSON, answerOf("ID", `{"tools":[{"name":"echo","name":"secret"}]}`)), false},
	"a name in another case":         {says(200, typeJSON, answerOf("ID", `{"tools":[{"name":"echo","NAME":"secret"}]}`)), false},
	"no name":                        {says(200, typeJSON, answerOf("ID", `{"tools":[{"title":"secret"}]}`)), false},
	"name is no text":                {says(200, typeJSON, answerOf("ID", `{"tools":[{"name":["secret"]}]}`)), false},
	"another id":                     {says(200, typeJSON, answerOf("99", secretList)), true},
	"another id in events":           {says(200, typeEvents, "data: "+answerOf("99", secretList)+"\n\ndata: "+answerOf("ID", secretList)+"\n\n"), true},
}

// Whatever status, type and shape the list of an HTTP server has, nothing of it passes unread.
func TestOddListsOfHTTPServers(t *testing.T) {
	t.Parallel()
	for era, stateless := range map[string]bool{"session": false, "stateless": true} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			server := &scripted{odd: map[string]func(http.ResponseWriter, *http.Request, string){}, stateless: stateless, sessionsOnly: !stateless}
			for name, test := range oddLists {
				server.odd[name] = test.answer
			}
			g := newGuard(t, nil)
			url := startScripted(t, g, server, config.StreamableHTTP)
			token := g.token("alice", nil)
			s := speakers[era](g, url, token)
			if status := s.open(); status != 200 {
				t.Fatalf("alice connects: %d", status)
			}
			for name, test := range oddLists {
				text := listWith(g, s, name)
				if strings.Contains(text, "secret") {
					t.Errorf("%s: alice reads %s", name, text)
				}
				if got := strings.Contains(text, `"echo"`) && isLegible(text); got != test.clear {
					t.Errorf("%s: alice reads %s, which should have been filtered: %t", name, text, test.clear)
				}
			}
		})
	}
}

// A list that cannot be filtered does not mean that the server was away and has lost the session. So the status
// 400 of a later answer does not end the session.
func TestOddListsEndNoSession(t *testing.T) {
	t.Parallel()
	server := &scripted{sessionsOnly: true, odd: map[string]func(http.ResponseWriter, *http.Request, string){
		"undecodable": oddLists["undecodable event"].answer, "refused": oddLists["status 400"].answer,
	}}
	g := newGuard(t, nil)
	url := startScripted(t, g, server, config.StreamableHTTP)
	s := &sessionSpeaker{guard: g, url: url, token: g.token("alice", nil), revision: "2025-11-25"}
	if status := s.open(); status != 200 {
		t.Fatalf("alice connects: %d", status)
	}
	listWith(g, s, "undecodable")
	listWith(g, s, "refused")
	if got := s.ask("tools/list", ""); got.status != 200 || !strings.Contains(got.message, `"echo"`) {
		t.Errorf("alice lists: %d %s", got.status, got.message)
	}
}

// isLegible reports whether an answer is a message, or events that all are messages or empty.
func isLegible(text string) bool {
	if json.Valid([]byte(text)) {
		return true
	}
	for line := range strings.Lines(text) {
		data, isData := strings.CutPrefix(line, "data: ")
		isField := isData || line == "\n" || strings.HasPrefix(line, "event: ") || strings.HasPrefix(line, "id: ") || strings.HasPrefix(line, ": ")
		if !isField || isData && data != "\n" && !json.Valid([]byte(data)) {
			return false
		}
	}
	return true
}

// listWith asks for a list in an odd way, and returns all that comes.
func listWith(g *guard, s speaker, odd string) string {
	g.t.Helper()
	headers := []string{"X-Odd", odd}
	text, url, token := requestText("tools/list", ""), "", ""
	switch s := s.(type) {
	case *sessionSpeaker:
		url, token, headers = s.url, s.token, append(headers, s.headers()...)
	case *statelessSpeaker:
		url, token, headers = s.url, s.token, append(headers, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list")
		text = requestText("tools/list", modernMeta)
	}
	response := g.request(http.MethodPost, url, token, text, headers...)
	defer func() { _ = response.Body.Close() }()
	all, _ := io.ReadAll(response.Body) // an answer may break off on purpose
	return response.Header.Get("Location") + string(all)
}

// A server that puts the answer to a list on the stream of another request, or repeats it when a client
// resumes a stream, does not help the client to see more.
func TestListsOnOtherStreams(t *testing.T) {
	t.Parallel()
	list := "id: e1\ndata: " + answerOf("3", secretList) + "\n\n"
	server := &scripted{sessionsOnly: true, odd: map[string]func(http.ResponseWriter, *http.Request, string){
		"interleaved": says(200, typeEvents, list+"data: "+answerOf("ID", `{"content":[]}`)+"\n\n"),
		"replayed":    says(200, typeEvents, list),
		"no stream":   says(200, typeJSON, answerOf("3", secretList)),
		"pings":       says(200, typeEvents, "event: ping\ndata: 2026-11-18\n\n"+list),
		"accepted":    says(200, typeEvents, list), // the answer to a notification
		"batch":       says(200, typeJSON, "["+answerOf("3", secretList)+","+answerOf("4", `{}`)+"]"),
		"batched":     says(200, typeEvents, "data: ["+answerOf("3", secretList)+","+answerOf("4", `{}`)+"]\n\n"),
	}}
	g := newGuard(t, nil)
	url := startScripted(t, g, server, config.StreamableHTTP)
	s := &sessionSpeaker{guard: g, url: url, token: g.token("alice", nil), revision: "2025-03-26"}
	if status := s.open(); status != 200 {
		t.Fatalf("alice connects: %d", status)
	}
	after := eventID(t, g.request(http.MethodPost, url, s.token, requestText("ping", ""), append(s.headers(), "X-Odd", "replayed")...))
	for name, test := range map[string]struct {
		method, body, odd string
	}{
		"in the answer to a call":         {http.MethodPost, requestText("tools/call", catalog["echo"].params), "interleaved"},
		"in the answer to a ping":         {http.MethodPost, requestText("ping", ""), "interleaved"},
		"in the answer to a notification": {http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "accepted"},
		"when a stream is resumed":        {http.MethodGet, "", "replayed"},
		"instead of a stream":             {http.MethodGet, "", "no stream"},
		"after an event that is none":     {http.MethodGet, "", "pings"},
		"in the answer to a batch":        {http.MethodPost, `[{"jsonrpc":"2.0","id":3,"method":"tools/list"},{"jsonrpc":"2.0","id":4,"method":"ping"}]`, "batch"},
		"in events of a batch":            {http.MethodPost, `[{"jsonrpc":"2.0","id":3,"method":"tools/list"},{"jsonrpc":"2.0","id":4,"method":"ping"}]`, "batched"},
	} {
		response := g.request(test.method, url, s.token, test.body, append(s.headers(), "X-Odd", test.odd, "Last-Event-Id", after)...)
		all, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if text := string(all); err != nil || !strings.Contains(text, `"echo"`) || strings.Contains(text, "secret") {
			t.Errorf("%s: alice reads %d %s, %v", name, response.StatusCode, text, err)
		}
	}
}

// A server that primes a stream and lets the client come back for the answer works for clients that see lists
// in part, too.
func TestFilteredStreamsCanBeResumed(t *testing.T) {
	t.Parallel()
	server := &scripted{sessionsOnly: true, odd: map[string]func(http.ResponseWriter, *http.Request, string){
		"primes": says(200, typeEvents, "id: p1\nretry: 250\ndata:\n\n"),
	}}
	g := newGuard(t, nil)
	url := startScripted(t, g, server, config.StreamableHTTP)
	s := &sessionSpeaker{guard: g, url: url, token: g.token("alice", nil), revision: "2025-11-25"}
	if status := s.open(); status != 200 {
		t.Fatalf("alice connects: %d", status)
	}
	for _, body := range []string{requestText("tools/call", catalog["echo"].params), requestText("tools/list", "")} {
		response := g.request(http.MethodPost, url, s.token, body, append(s.headers(), "X-Odd", "primes")...)
		all, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if text := string(all); err != nil || !strings.HasPrefix(text, "id: ") || !strings.HasSuffix(text, ".p1\nretry: 250\ndata: \n\n") {
			t.Errorf("%s: alice reads %q, %v", body, text, err)
		}
	}
}

// The adapter's own sessions filter lists on every stream, too: with a notification before the answer it is
// an event, which a client can have repeated.
func TestOddListsInOwnSessions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result string
		clear  bool
	}{
		"a list":              {secretList, true},
		"tools twice":         {`{"tools":[{"name":"echo"}],"tools":[` + half + `]}`, false},
		"tools in upper case": {`{"tools":[{"name":"echo"}],"TOOLS":[` + half + `]}`, false},
		"no name":             {`{"tools":[{"title":"secret"}]}`, false},
		"no object":           {`["secret"]`, false},
		"a name twice":        {`{"tools":[{"name":"echo","name":"secret"}]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &scriptedSSE{}
			g := newGuard(t, nil)
			url := startScripted(t, g, server, config.SSE)
			server.set(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`, answerOf("ID", test.result))
			check := func(how, text string) {
				if strings.Contains(text, "secret") || strings.Contains(text, `"echo"`) != test.clear {
					t.Errorf("%s, alice reads %s", how, text)
				}
			}
			token := g.token("alice", nil)
			s := &sessionSpeaker{guard: g, url: url, token: token, revision: "2025-11-25"}
			if status := s.open(); status != 200 {
				t.Fatalf("alice connects: %d", status)
			}
			response := g.request(http.MethodPost, url, token, requestText("tools/list", ""), s.headers()...)
			all, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || response.Header.Get("Content-Type") != typeEvents {
				t.Fatalf("the answer is %s %v", all, err)
			}
			check("at first", string(all))
			_, first, _ := strings.Cut(string(all), "id: ")
			first, _, _ = strings.Cut(first, "\n")
			again := g.request(http.MethodGet, url, token, "", append(s.headers(), "Last-Event-Id", first)...)
			check("when the stream is resumed", g.nextAnswer(bufio.NewReader(again.Body)))
			_ = again.Body.Close()
			check("without a session", speakers["stateless"](g, url, token).ask("tools/list", "").message)
		})
	}
}
