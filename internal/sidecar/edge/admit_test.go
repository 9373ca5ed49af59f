package edge

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
)

// A browser lets a page of an allowed origin use the endpoint, and no other page.
func TestAdmitCrossOrigin(t *testing.T) {
	const chat, loopback, evil = "https://chat.example.com", "http://localhost:6274", "https://evil.example.com"
	listed := origin.Policy{Origins: []string{chat}}
	preflight := func(origin, headers string) http.Header {
		h := http.Header{"Origin": {origin}, "Access-Control-Request-Method": {"POST"}}
		if headers != "" {
			h.Set("Access-Control-Request-Headers", headers)
		}
		return h
	}
	answered := func(origin string) http.Header {
		return http.Header{
			"Access-Control-Allow-Origin":   {origin},
			"Access-Control-Expose-Headers": {"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"},
			"Vary":                          {"Origin"},
		}
	}
	allowed := func(origin, headers string) http.Header {
		h := http.Header{
			"Access-Control-Allow-Origin":  {origin},
			"Access-Control-Allow-Methods": {"GET, POST, DELETE"},
			"Access-Control-Max-Age":       {"7200"},
			"Vary":                         {"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"},
		}
		if headers != "" {
			h.Set("Access-Control-Allow-Headers", headers)
		}
		return h
	}
	for name, test := range map[string]struct {
		policy origin.Policy
		method string
		header http.Header
		status int // 0 if the request is let in
		want   http.Header
	}{
		"no origin":           {listed, "POST", nil, 0, http.Header{}},
		"listed":              {listed, "POST", http.Header{"Origin": {chat}}, 0, answered(chat)},
		"loopback":            {listed, "GET", http.Header{"Origin": {loopback}}, 0, answered(loopback)},
		"any":                 {origin.Policy{Origins: []string{"*"}}, "POST", http.Header{"Origin": {evil}}, 0, answered(evil)},
		"not listed":          {listed, "POST", http.Header{"Origin": {evil}}, 403, http.Header{}},
		"opaque":              {listed, "POST", http.Header{"Origin": {"null"}}, 403, http.Header{}},
		"several":             {listed, "POST", http.Header{"Origin": {chat, loopback}}, 0, http.Header{}},
		"preflight":           {listed, "OPTIONS", preflight(chat, "content-type,mcp-session-id, x-own"), 204, allowed(chat, "content-type,mcp-session-id, x-own")},
		"preflight, bare":     {listed, "OPTIONS", preflight(loopback, ""), 204, allowed(loopback, "")},
		"preflight, evil":     {listed, "OPTIONS", preflight(evil, "content-type"), 403, http.Header{}},
		"preflight, no token": {listed, "OPTIONS", preflight(chat, "a b"), 204, allowed(chat, "")},
		"preflight, a lot":    {listed, "OPTIONS", preflight(chat, strings.Repeat("a", 5000)), 204, allowed(chat, "")},
		"other OPTIONS":       {listed, "OPTIONS", http.Header{"Origin": {chat}}, 0, answered(chat)},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(test.method, "/mcp", nil)
			maps.Copy(r.Header, test.header)
			w := httptest.NewRecorder()
			in := (&Origins{Policy: func() *origin.Policy { return &test.policy }}).Admit(w, r, "GET, POST, DELETE")
			if in != (test.status == 0) || !in && w.Code != test.status {
				t.Errorf("let in: %t, status %d", in, w.Code)
			}
			got := w.Header()
			got.Del("Content-Type")
			got.Del("Content-Length")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
			if w.Code == http.StatusNoContent && w.Body.Len() > 0 {
				t.Errorf("204 with %s", w.Body)
			}
		})
	}
}

// What Admit remembers of a host that was allowed is no way around the policy.
func TestUsualHost(t *testing.T) {
	narrow, wide := &origin.Policy{Hosts: []string{"a.example"}}, &origin.Policy{Hosts: []string{"a.example", "b.example"}}
	policy := narrow
	origins := &Origins{Policy: func() *origin.Policy { return policy }}
	for i, step := range []struct {
		policy       *origin.Policy
		host, origin string
		want         bool
	}{
		{narrow, "b.example", "", false},
		{narrow, "a.example", "", true},
		{narrow, "a.example", "", true},
		{narrow, "b.example", "", false},
		{narrow, "", "", false},
		{narrow, "a.example", "https://evil.example", false},
		{narrow, "a.example", "http://localhost:1", true},
		{wide, "b.example", "", true},
		{wide, "b.example", "https://evil.example", false},
		{wide, "a.example", "", true},
		{narrow, "b.example", "", false},
		{narrow, "a.example", "", true},
		{&origin.Policy{Hosts: []string{"c.example"}}, "a.example", "", false},
	} {
		policy = step.policy
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Host = step.host
		if step.origin != "" {
			r.Header.Set(headerOrigin, step.origin)
		}
		if got := origins.Admit(httptest.NewRecorder(), r, "POST"); got != step.want {
			t.Errorf("step %d: admitted is %t, want %t", i, got, step.want)
		}
	}
}
