package sidecar

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
)

// recorded has the records of all requests, by the replica that made them.
type recorded struct {
	mu  sync.Mutex
	all []string
}

func (r *recorded) note(record edge.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	who := ""
	if identity := record.Caller.Identity(); identity != nil {
		who = identity.User
	}
	r.all = append(r.all, record.Method+" by "+who+" from "+record.Caller.Address)
}

func (r *recorded) has(want string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.all, want)
}

// The owner knows who the client of another replica is, and its own document decides. A token that the client may
// not use is refused at the entry. Nothing that a client sends makes it another one.
func TestForwardedCallers(t *testing.T) {
	t.Parallel()
	entryGuard := newGuard(t, nil)
	ownerGuard := &guard{t: t, issuer: entryGuard.issuer, gate: newGuard(t, nil).gate, document: entryGuard.document}
	ownerGuard.take(func(a *adapterapi.Access) {
		a.Generation = 100
		a.Rules = append(a.Rules, adapterapi.AccessRule{
			Subjects: []adapterapi.AccessSubject{{Kind: adapterapi.SubjectUser, Name: "corp:root"}}, Tools: []string{"count"},
		})
		a.Hidden = append(a.Hidden, "pid") // only at the owner
	})
	var records recorded
	number := 0
	replicas := startReplicas(t, 2, func(c *config.Config) {
		c.Access = entryGuard.gate
		if number++; number == 1 {
			c.Access, c.Recorded = ownerGuard.gate, records.note
		}
	})
	url := func(i int) string { return "http://" + replicas[i].host + Path }
	at := func(i int, token, body string, headers ...string) *http.Response {
		t.Helper()
		response := entryGuard.request(http.MethodPost, url(i), token, body, append([]string{"Host", "echo.demo.svc"}, headers...)...)
		t.Cleanup(func() { _ = response.Body.Close() })
		return response
	}
	root := entryGuard.token("root", nil)
	opened := at(0, root, initializeMessage)
	id := opened.Header.Get("Mcp-Session-Id")
	if id == "" {
		t.Fatalf("got %s", opened.Status)
	}
	for name, test := range map[string]struct {
		token  string
		tool   string
		header []string
		want   int
	}{
		"the same user":                      {token: root, tool: "echo", want: http.StatusOK},
		"a refreshed token":                  {token: entryGuard.token("root", map[string]any{"jti": "2"}), tool: "echo", want: http.StatusOK},
		"another user":                       {token: entryGuard.token("alice", nil), tool: "echo", want: http.StatusNotFound},
		"another user who claims to be":      {token: entryGuard.token("alice", nil), tool: "echo", header: []string{"Slipway-Peer-Principal", "eyJ1c2VyIjoiY29ycDpyb290In0"}, want: http.StatusNotFound},
		"another user with a trick":          {token: entryGuard.token("alice", nil), tool: "echo", header: []string{"Connection", "Slipway-Peer-Principal"}, want: http.StatusNotFound},
		"no token":                           {token: "", tool: "echo", want: http.StatusUnauthorized},
		"a tool that the owner's rules hide": {token: root, tool: "pid", want: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			response := at(1, test.token, call(1, test.tool, `"text":"x"`), append([]string{"Mcp-Session-Id", id}, test.header...)...)
			if response.StatusCode != test.want {
				t.Errorf("got %s, want %d", response.Status, test.want)
			}
		})
	}
	if want := "tools/call by corp:root from 127.0.0.1"; !records.has(want) {
		t.Errorf("the owner has no record %q, but %s", want, strings.Join(records.all, "; "))
	}
}
