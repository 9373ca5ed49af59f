package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/audit"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// A call that another replica answers leaves one line, at the owner, about the client. One that the entry refuses
// leaves it there.
func TestForwardedAudit(t *testing.T) {
	t.Parallel()
	g := newGuard(t, func(a *adapterapi.Access) { a.Audit.Level = adapterapi.AuditMetadata })
	var written [2]bytes.Buffer
	var logs []*audit.Log
	replicas := startReplicas(t, 2, func(c *config.Config) {
		logs = append(logs, audit.New(&written[len(logs)], nil))
		c.Access, c.Audit = g.gate, logs[len(logs)-1]
	})
	client, owner, entry := awayClient(t), replicas[0], replicas[1]
	header := http.Header{"Authorization": {g.token("root", nil)}, "User-Agent": {"away/1"}}
	_, session := away(t, client, owner, header, initializeMessage)
	header.Set(sessionHeader, session)
	for tool, want := range map[string]int{"echo": http.StatusOK, "grow": http.StatusForbidden} {
		if status, _ := away(t, client, entry, header, call(1, tool, `"text":"x"`)); status != want {
			t.Errorf("%s: got %d", tool, status)
		}
	}
	header.Set("Authorization", g.token("alice", nil))
	if status, _ := away(t, client, entry, header, call(1, "echo", `"text":"x"`)); status != http.StatusNotFound {
		t.Errorf("the session of another: got %d", status)
	}
	header.Del("Authorization")
	if status, _ := away(t, client, entry, header, call(1, "echo", `"text":"x"`)); status != http.StatusUnauthorized {
		t.Errorf("without a token: got %d", status)
	}
	entry.stop()
	owner.stop()
	for i, want := range [][]string{
		{
			"session/begin corp:root / 200 0 allow ", "tools/call corp:root tools/echo 200 0 allow ", "tools/call corp:root tools/grow 403 403 deny no_rule",
			"tools/call corp:alice tools/echo 404 -32600 deny foreign", "session/end corp:root / 200 0 allow ",
		},
		{"http/post system:anonymous / 401 401 deny missing"},
	} {
		if err := logs[i].Close(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		var got []string
		for text := range strings.Lines(written[i].String()) {
			var line auditLine
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if !slices.Equal(line.SourceIPs, []string{awayAddress}) || line.UserAgent != "away/1" {
				t.Errorf("the line does not say where the request came from: %s", text)
			}
			got = append(got, line.brief())
		}
		if diff := cmp.Diff(want, got, cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
			t.Errorf("lines of replica %d (-want +got):\n%s", i, diff)
		}
	}
}
