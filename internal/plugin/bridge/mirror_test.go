package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// player is a server of revision 2026-07-28, or one with sessions, that answers as a test wants.
type player struct {
	mu    sync.Mutex
	seen  []string // what came, as METHOD and headers
	plays func(w http.ResponseWriter, request *http.Request, m played) bool
}

// played is what a test looks at of a message.
type played struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string         `json:"name"`
		Cursor    string         `json:"cursor"`
		Arguments map[string]any `json:"arguments"`
		// RequestID is that of a request that is canceled.
		RequestID json.RawMessage `json:"requestId"`
	} `json:"params"`
}

// ServeHTTP implements http.Handler.
func (p *player) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	content, err := io.ReadAll(request.Body)
	var m played
	if err != nil || json.Unmarshal(content, &m) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	p.note(m, request.Header)
	if !p.plays(w, request, m) {
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete"}}`, m.ID)
	}
}

// note keeps what came, without what is the same for all.
func (p *player) note(m played, header http.Header) {
	words := []string{m.Method}
	for _, name := range []string{"Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Param-Region", "Mcp-Param-Count"} {
		if value, ok := header[name]; ok {
			words = append(words, strings.TrimPrefix(name, "Mcp-")+"="+strings.Join(value, ","))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, strings.Join(words, " "))
}

func (p *player) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// converse gives a bridge lines of a client, one after the answer to the other, and returns the answers.
func converse(t *testing.T, handler http.Handler, lines ...string) []string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	fromClient, toBridge := io.Pipe()
	fromBridge, toClient := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		b := &Bridge{Client: &http.Client{Transport: &http.Transport{}}, Endpoint: server.URL}
		ended <- b.Run(ctx, fromClient, toClient)
	}()
	answers := json.NewDecoder(fromBridge)
	var all []string
	for _, line := range lines {
		if _, err := io.WriteString(toBridge, line+"\n"); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(line, `"id"`) {
			continue
		}
		var answer json.RawMessage
		if err := answers.Decode(&answer); err != nil {
			t.Fatal(err)
		}
		all = append(all, string(answer))
	}
	_ = toBridge.Close()
	go func() { _, _ = io.Copy(io.Discard, fromBridge) }()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return all
}

// modern is a request of revision 2026-07-28.
func modern(id int, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, id, method, params)
}

const schemaWithHeaders = `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"object","properties":{"count":{"type":"integer","x-mcp-header":"Count"}}}}}`

// A client without sessions sends no headers on standard input: the bridge makes them of the message, and of
// what the server's list says of its tools.
func TestHeaders(t *testing.T) {
	p := &player{plays: func(w http.ResponseWriter, _ *http.Request, m played) bool {
		if m.Method != "tools/list" {
			return false
		}
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"where","inputSchema":%s},{"name":"plain","inputSchema":{}}]}}`, m.ID, schemaWithHeaders)
		return true
	}}
	converse(t, p,
		modern(1, "server/discover", ""),
		modern(2, "tools/list", ""),
		modern(3, "tools/call", `"name":"where","arguments":{"region":"eu","n":{"count":7}},`),
		modern(4, "tools/call", `"name":"where","arguments":{"region":" Süd"},`),
		modern(5, "tools/call", `"name":"where","arguments":{"region":null},`),
		modern(6, "tools/call", `"name":"plain","arguments":{"region":"eu"},`),
		modern(7, "prompts/get", `"name":"Grüße",`),
		modern(8, "resources/read", `"uri":"file:///a b",`),
		modern(9, "tools/list", `"name":"x",`),
		modern(10, "tasks/get", `"taskId":"=?base64?t?=",`),
		`{"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"where","arguments":{"region":"eu"}}}`,
	)
	const revision = " Protocol-Version=2026-07-28 Method="
	want := []string{
		"server/discover" + revision + "server/discover",
		"tools/list" + revision + "tools/list",
		"tools/call" + revision + "tools/call Name=where Param-Region=eu Param-Count=7",
		"tools/call" + revision + "tools/call Name=where Param-Region==?base64?IFPDvGQ=?=",
		"tools/call" + revision + "tools/call Name=where",
		"tools/call" + revision + "tools/call Name=plain",
		"prompts/get" + revision + "prompts/get Name==?base64?R3LDvMOfZQ==?=",
		"resources/read" + revision + "resources/read Name=file:///a b",
		"tools/list" + revision + "tools/list",
		"tasks/get" + revision + "tasks/get Name==?base64?PT9iYXNlNjQ/dD89?=",
		"tools/call", // of a session
	}
	if diff := cmp.Diff(want, p.all()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// strict refuses calls without the header of their argument, as the specification wants it.
func strict(w http.ResponseWriter, request *http.Request, m played) bool {
	switch {
	case m.Method == "tools/list" && m.Params.Cursor == "":
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"plain","inputSchema":{}}],"nextCursor":"more"}}`, m.ID)
		return true
	case m.Method == "tools/list":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"tools\":[{\"name\":\"where\",\"inputSchema\":%s}]}}\n\n", m.ID, schemaWithHeaders)
		return true
	case m.Params.Name == "never" || m.Params.Name == "where" && request.Header.Get("Mcp-Param-Region") != m.Params.Arguments["region"]:
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"the header Mcp-Param-Region is missing"}}`, m.ID)
		return true
	}
	return false
}

// A server that refuses headers has not run the call. The bridge asks for the list of tools, and calls again
// if that makes a difference.
func TestHeaderMismatch(t *testing.T) {
	p := &player{plays: strict}
	call := modern(1, "tools/call", `"name":"where","arguments":{"region":"eu"},`)
	answers := converse(t, p, call, call)
	const revision = " Protocol-Version=2026-07-28 Method="
	want := []string{
		"tools/call" + revision + "tools/call Name=where",
		"tools/list" + revision + "tools/list",
		"tools/list" + revision + "tools/list",
		"tools/call" + revision + "tools/call Name=where Param-Region=eu",
		"tools/call" + revision + "tools/call Name=where Param-Region=eu",
	}
	if diff := cmp.Diff(want, p.all()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(answers[0], "complete") || !strings.Contains(answers[1], "complete") {
		t.Errorf("the calls are answered with %s", answers)
	}
	p = &player{plays: strict}
	answers = converse(t, p, modern(2, "tools/call", `"name":"never",`))
	if len(p.all()) != 3 || !strings.Contains(answers[0], "-32020") {
		t.Errorf("a call that stays refused is answered with %s after %v", answers[0], p.all())
	}
}

// The real adapter takes what the bridge sends for a client without sessions.
func TestHeadersForTheAdapter(t *testing.T) {
	var out bytes.Buffer
	b := &Bridge{Client: http.DefaultClient, Endpoint: startAdapter(t)}
	in := strings.NewReader(strings.ReplaceAll(modern(1, "tools/call", `"name":"écho ","arguments":{},`), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},`))
	if err := b.Run(t.Context(), in, &out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "unknown tool") {
		t.Errorf("got %s", got)
	}
}
