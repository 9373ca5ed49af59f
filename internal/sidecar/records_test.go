package sidecar

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/test/hang"
)

// walker makes requests one by one and looks at what is recorded of each.
type walker struct {
	t       *testing.T
	records chan edge.Record
	url     string // without a path
}

func (w *walker) record(c *config.Config) {
	w.records = make(chan edge.Record, 256)
	c.Recorded = func(r edge.Record) { w.records <- r }
}

// brief is what a test can know beforehand of a record.
type brief struct {
	Front            edge.Front
	HTTPMethod, Path string
	Method, Revision string
	InSession        bool
	Status           int
	Error            edge.ErrorType
	Principal        caller.Principal
	Probe            bool
}

func (w *walker) next() brief {
	w.t.Helper()
	select {
	case r := <-w.records:
		if r.Duration <= 0 || r.Duration > hang.Guard || r.Caller.Address != "127.0.0.1" {
			w.t.Errorf("record %+v", r)
		}
		return brief{r.Front, r.HTTPMethod, r.Path, r.Method, r.Revision, r.Session != "", r.Status, r.Error, r.Caller.Principal, r.Caller.Probe}
	case <-time.After(hang.Guard):
		w.t.Fatal("nothing is recorded")
		return brief{}
	}
}

// do makes a request and reads the answer to its end.
func (w *walker) do(ctx context.Context, method, path, body string, headers ...string) http.Header {
	w.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		w.t.Fatal(err)
	}
	return response.Header
}

func (w *walker) want(what string, want brief) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.next()); diff != "" {
		w.t.Errorf("record of %s (-want +got):\n%s", what, diff)
	}
}

const (
	initializeBatchable = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	callPid             = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"pid"}}`
	modernMeta          = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	sessionHeader       = "Mcp-Session-Id"
)

// A request of each kind leaves one record, with all that is known of it.
func TestRecords(t *testing.T) {
	t.Parallel()
	w := &walker{t: t}
	_, url := startAdapterOn(t, newListener(t), func(c *config.Config) {
		c.LegacySSE = true
		w.record(c)
	}, bothServer)
	w.url = strings.TrimSuffix(url, Path)
	ctx := t.Context()

	header := w.do(ctx, "POST", Path, initializeBatchable)
	id := header.Get(sessionHeader)
	w.want("initialize", brief{edge.Streamable, "POST", Path, "initialize", "2025-03-26", true, 200, "", "", false})
	w.do(ctx, "POST", Path, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, sessionHeader, id)
	w.want("a notification", brief{edge.Streamable, "POST", Path, "notifications/initialized", "2025-03-26", true, 202, "", "", false})
	w.do(ctx, "POST", Path, fmt.Sprintf(callPid, 1), sessionHeader, id)
	w.want("1, a call", brief{edge.Streamable, "POST", Path, "tools/call", "2025-03-26", true, 200, "", "", false})
	w.do(ctx, "POST", Path, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"nonsense"}}`, sessionHeader, id)
	w.want("a call that fails", brief{edge.Streamable, "POST", Path, "tools/call", "2025-03-26", true, 200, "-32602", "", false})
	w.do(ctx, "POST", Path, `{"jsonrpc":"2.0","id":2,"method":"made/up"}`, sessionHeader, id)
	w.want("an unknown method", brief{edge.Streamable, "POST", Path, "_OTHER", "2025-03-26", true, 200, "-32601", "", false})
	_, leave := w.listen(Path, sessionHeader, id)
	leave()
	w.want("2, a stream", brief{edge.Streamable, "GET", Path, "", "2025-03-26", true, 200, edge.Cancelled, "", false})
	w.do(ctx, "POST", Path, "["+fmt.Sprintf(callPid, 3)+","+fmt.Sprintf(callPid, 4)+"]", sessionHeader, id)
	w.want("3, a batch", brief{edge.Streamable, "POST", Path, "batch", "2025-03-26", true, 200, "", "", false})
	w.do(ctx, "DELETE", Path, "", sessionHeader, id)
	w.want("4, an end", brief{edge.Streamable, "DELETE", Path, "", "2025-03-26", true, 204, "", "", false})
	w.do(ctx, "POST", Path, fmt.Sprintf(callPid, 5), sessionHeader, id)
	w.want("a session that has ended", brief{edge.Streamable, "POST", Path, "tools/call", "", false, 404, "-32600", "", false})
	w.do(ctx, "POST", Path, fmt.Sprintf(callPid, 5)+strings.Repeat(" ", mostUnread), sessionHeader, id)
	w.want("a session that has ended, whose body is not read", brief{edge.Streamable, "POST", Path, "", "", false, 404, "-32600", "", false})

	w.do(ctx, "POST", Path, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}`, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list", "Authorization", "Bearer opaque")
	w.want("5, a stateless request", brief{edge.Stateless, "POST", Path, "tools/list", "2026-07-28", false, 200, "", caller.SomeToken, false})

	w.do(ctx, "POST", Path, initializeMessage, adapterapi.HeaderProbe, proofOf(testKey, testPodUID, time.Now()))
	w.want("6, a probe", brief{edge.Streamable, "POST", Path, "initialize", "2025-11-25", true, 200, "", "", true})

	w.walkSSE()
	w.do(ctx, "POST", "/elsewhere", "{}")
	select {
	case r := <-w.records:
		if r.Path != "/elsewhere" || r.Status != 404 || r.Front != "" {
			t.Errorf("record of another path: %+v", r)
		}
	case <-time.After(hang.Guard):
		t.Error("another path is not recorded")
	}
}

// listen opens a stream and reads what comes first.
func (w *walker) listen(path string, headers ...string) (first string, leave context.CancelFunc) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	buffer := make([]byte, 1<<10)
	n, err := response.Body.Read(buffer)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(buffer[:n]), func() {
		cancel()
		_ = response.Body.Close()
	}
}

// walkSSE has a client of the oldest transport make a call.
func (w *walker) walkSSE() {
	w.t.Helper()
	first, leave := w.listen("/sse")
	defer leave()
	_, endpoint, _ := strings.Cut(strings.TrimSpace(first), "data: ")
	w.do(w.t.Context(), "POST", endpoint, initializeMessage)
	w.want("7, a message", brief{edge.HTTPAndSSE, "POST", "/messages", "initialize", "", true, 202, "", "", false})
	leave()
	w.want("8, the stream of a connection", brief{edge.HTTPAndSSE, "GET", "/sse", "", "", true, 200, edge.Cancelled, "", false})
}

// Requests to servers that speak HTTP leave a record, whether they are translated or not.
func TestRecordsOfHTTPServers(t *testing.T) {
	t.Parallel()
	answer := func(w http.ResponseWriter, _ *http.Request, id string, _ []byte) {
		reply(w, id, `{"resultType":"complete","content":[]}`)
	}
	for name, test := range map[string]struct {
		server *httpServer
		front  edge.Front
	}{
		"9, native":     {&httpServer{initialize: agreeToInitialize, call: answer}, edge.HTTPServer},
		"9, translated": {&httpServer{initialize: refuseInitialize, call: answer}, edge.Streamable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &walker{t: t}
			_, url := adapterFor(t, test.server, w.record)
			w.url = strings.TrimSuffix(url, Path)
			header := w.do(t.Context(), "POST", Path, initializeMessage)
			w.want("initialize", brief{test.front, "POST", Path, "initialize", "2025-11-25", true, 200, "", "", false})
			w.do(t.Context(), "POST", Path, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{}}}`, sessionHeader, header.Get(sessionHeader))
			w.want("a call", brief{test.front, "POST", Path, "tools/call", "2025-11-25", true, 200, "", "", false})
		})
	}
}
