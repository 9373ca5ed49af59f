package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/audit"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// Audits tell the handle of another caller from a request that the server refuses.
func TestAuditOfForeignHandles(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	log := audit.New(&lines, nil)
	g := newGuard(t, func(a *adapterapi.Access) {
		echoForAll(a)
		a.Audit.Level = adapterapi.AuditMetadata
	})
	_, url := startAdapter(t, g.guarded(func(c *config.Config) {
		c.Audit = log
		c.Transport, c.UpstreamURL = config.StreamableHTTP, serveHTTP(t, &scripted{})
	}))
	bob := &oddSpeaker{g, url, g.token("bob", nil), ""}
	for method, params := range map[string]string{
		"tools/call": `"name":"echo","requestState":"secret"`, "tasks/get": `"taskId":"secret"`,
		"subscriptions/listen": `"notifications":{"taskIds":["secret"]}`,
	} {
		bob.ask(method, params)
	}
	g.ask(http.MethodGet, url, bob.token, "", "Last-Event-Id", "secret")
	if err := log.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"tools/call corp:bob tools/echo 200 -32602 deny foreign",
		"tasks/get corp:bob / 200 -32602 deny foreign",
		"subscriptions/listen corp:bob / 200 -32602 deny foreign",
		"http/get corp:bob / 400 -32600 deny foreign",
	}
	var got []string
	for text := range strings.Lines(lines.String()) {
		var line auditLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got = append(got, line.brief())
	}
	if diff := cmp.Diff(want, got, cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if strings.Contains(lines.String(), "secret") {
		t.Error("a line tells a handle")
	}
}
