package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/audit"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// auditLine is what the tests look at.
type auditLine struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Subresource, Tool, URI, Namespace, Name string
	} `json:"objectRef"`
	Response struct {
		Code    int `json:"code"`
		JSONRPC int `json:"jsonrpc"`
	} `json:"responseStatus"`
	SourceIPs   []string          `json:"sourceIPs"`
	UserAgent   string            `json:"userAgent"`
	Annotations map[string]string `json:"annotations"`
}

// brief is what a line says, in one line.
func (l *auditLine) brief() string {
	return fmt.Sprintf("%s %s %s/%s%s %d %d %s %s", l.Verb, l.User.Username, l.Object.Subresource, l.Object.Tool, l.Object.URI,
		l.Response.Code, l.Response.JSONRPC, l.Annotations["authorization"], l.Annotations["reason"])
}

// Every call, refusal and session leaves one line. None has a token, a session id or an argument.
func TestAuditLines(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{"a process for each session": "", "an HTTP server": "legacy"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lines bytes.Buffer
			log := audit.New(&lines, nil)
			g := newGuard(t, func(a *adapterapi.Access) { a.Audit.Level = adapterapi.AuditMetadata })
			_, url := startAdapterOn(t, newListener(t), g.guarded(func(c *config.Config) {
				c.Audit = log
				if kind != "" {
					c.Transport, c.UpstreamURL = config.StreamableHTTP, serveMatrix(t, kind)
				}
			}), matrixServer)
			s := &sessionSpeaker{guard: g, url: url, token: g.token("alice", nil), revision: "2025-11-25"}
			if status := s.open(); status != http.StatusOK {
				t.Fatalf("alice connects: %d", status)
			}
			s.ask("tools/list", "")
			s.ask("ping", "")
			s.ask("tools/call", `"name":"echo","arguments":{"text":"argument"}`)
			s.ask("tools/call", `"name":"secret","arguments":{"text":"argument"}`)
			s.ask("resources/read", `"uri":"matrix://item/k"`)
			g.ask(http.MethodPost, url, "", callOf(`"name":"echo"`), s.headers()...)
			g.ask(http.MethodPost, url, "Bearer opaque", callOf(`"name":"echo"`), s.headers()...)
			g.ask(http.MethodPost, url, g.token("bob", nil), requestText("tools/call", `"name":"revision","arguments":{}`), s.headers()...)
			g.ask(http.MethodPost, url, g.token("bob", nil), requestText("ping", ""), s.headers()...)
			s.close()
			if err := log.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Fatal(err)
			}
			want := []string{
				"session/begin corp:alice / 200 0 allow ",
				"tools/call corp:alice tools/echo 200 0 allow ",
				"tools/call corp:alice tools/secret 403 403 deny no_rule",
				"resources/read corp:alice resources/matrix://item/k 200 0 allow ",
				"http/post system:anonymous / 401 401 deny missing",
				"http/post system:anonymous / 401 401 deny malformed",
				"tools/call corp:bob tools/revision 404 -32600 deny foreign",
				"ping corp:bob / 404 -32600 deny foreign",
				"session/end corp:alice / 200 0 allow ",
			}
			var got []string
			for text := range strings.Lines(lines.String()) {
				var line auditLine
				if err := json.Unmarshal([]byte(text), &line); err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				if line.Object.Namespace != "demo" || line.Object.Name != "echo" {
					t.Errorf("the line is of another server: %s", text)
				}
				if len(line.SourceIPs) != 1 || line.SourceIPs[0] != "127.0.0.1" || !strings.HasPrefix(line.UserAgent, "Go-http-client/") {
					t.Errorf("the line does not say where the request came from: %s", text)
				}
				got = append(got, line.brief())
			}
			if diff := cmp.Diff(want, got, cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			for _, secret := range []string{strings.TrimPrefix(s.token, "Bearer "), s.key, "argument", "opaque", "hello"} {
				if strings.Contains(lines.String(), secret) {
					t.Errorf("the lines have %s:\n%s", secret, lines.String())
				}
			}
		})
	}
}

// A session of the older transport begins with a GET.
func TestAuditLineOfSSE(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	log := audit.New(&lines, nil)
	g := newGuard(t, func(a *adapterapi.Access) { a.Audit.Level = adapterapi.AuditMetadata })
	_, url := startAdapterOn(t, newListener(t), g.guarded(func(c *config.Config) { c.Audit, c.LegacySSE = log, true }), matrixServer)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(url, Path)+"/sse", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", g.token("alice", nil))
	request.Header.Set("User-Agent", "older/1")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := answer.Body.Read(make([]byte, 1)); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("got %d, %v", answer.StatusCode, err)
	}
	if err := log.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	var line auditLine
	if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Verb != "session/begin" || line.UserAgent != "older/1" || len(line.SourceIPs) != 1 {
		t.Errorf("the lines are %s, %v", lines.String(), err)
	}
}
