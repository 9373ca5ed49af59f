package remote

import (
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// L-34: whether a server has sessions is known once it was asked to open one.
func TestInitializes(t *testing.T) {
	const (
		agreed  = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`
		refused = `{"jsonrpc":"2.0","id":0,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}}`
		unknown = `{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"no"}}`
		invalid = `{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no"}}`
		failed  = `{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"no"}}`
	)
	status := func(line, body string) http.Handler {
		return script("HTTP/1.1 " + line + "\r\nConnection: close\r\n\r\n" + body)
	}
	for name, test := range map[string]struct {
		handler http.Handler
		want    bool
		certain bool
		err     string
		deleted int
	}{
		"Go SDK":                {streamableServer(nil), true, true, "", 1},
		"Go SDK, stateless":     {streamableServer(&mcp.StreamableHTTPOptions{Stateless: true}), true, true, "", 0},
		"stream":                {script(ok(typeEvents, "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\ndata: "+agreed+"\n\n", headerSession+": abc\r\nConnection: close\r\n")), true, true, "", 1},
		"error, with a session": {script(ok(typeJSON, refused, headerSession+": abc\r\nConnection: close\r\n")), false, true, "", 1},
		"error in a stream":     {script(ok(typeEvents, "data: "+refused+"\n\n")), false, true, "", 0},
		"400":                   {status("400 Bad Request", refused), false, true, "", 0},
		"404, unknown":          {status("404 Not Found", unknown), false, true, "", 0},
		"400, invalid":          {status("400 Bad Request", invalid), false, false, "", 0},
		"400, HTML":             {status("400 Bad Request", "<html>"), false, false, "", 0},
		"invalid":               {script(ok(typeJSON, invalid)), false, false, "", 0},
		"failed":                {script(ok(typeJSON, failed)), false, false, "error -32603", 0},
		"500, failed":           {status("500 Internal Server Error", failed), false, false, "error -32603", 0},
		"404":                   {status("404 Not Found", ""), false, false, "", 0},
		"405":                   {status("405 Method Not Allowed", ""), false, false, "", 0},
		"401":                   {status("401 Unauthorized", ""), false, false, "status 401", 0},
		"429":                   {status("429 Too Many Requests", ""), false, false, "status 429", 0},
		"503":                   {status("503 Service Unavailable", ""), false, false, "status 503", 0},
		"HTML":                  {script(ok("text/html", "<html>")), false, false, "no answer to the request", 0},
		"stream ends":           {script(ok(typeEvents, ": hello\n\n")), false, false, "EOF", 0},
		"redirect":              {http.RedirectHandler("http://evil.example/", http.StatusTemporaryRedirect), false, false, "redirection", 0},
		"hostile id":            {script(ok(typeJSON, agreed, headerSession+": a b\r\n")), false, false, "characters", 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, test.handler)
			got, certain, err := New(connectionOptions(b.URL("/mcp"))).Initializes(t.Context())
			if got != test.want || certain != test.certain || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, certain %v, %v, want %v, %v, %q", got, certain, err, test.want, test.certain, test.err)
			}
			deleted := b.Requests("DELETE")
			if len(deleted) != test.deleted {
				t.Errorf("%d DELETE, want %d", len(deleted), test.deleted)
			}
			for _, got := range append(deleted, b.Requests("POST")...) {
				if got.Header.Get("Authorization") != "" || got.Header.Get("User-Agent") != "" {
					t.Errorf("the server sees %v", got.Header)
				}
			}
		})
	}
	b := newBackend(t, http.NotFoundHandler())
	b.Stop()
	if _, _, err := New(connectionOptions(b.URL("/mcp"))).Initializes(t.Context()); err == nil {
		t.Error("a server that is not there: no error")
	}
}
