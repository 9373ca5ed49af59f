package sidecar

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
	"github.com/slipway-mcp/slipway/test/quoted"
)

// refusedCase is a request that an adapter refuses, as the page on troubleshooting says.
type refusedCase struct {
	path, method, token, body string
	headers                   []string
	status                    int
}

// The page on troubleshooting has the words with which adapters refuse requests, below the status of the answer.
func TestRefusalsAreInTroubleshooting(t *testing.T) {
	t.Parallel()
	messages, err := quoted.Messages("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	inPod := func(c *config.Config) {
		c.Names.Fields, c.MaxSessions, c.Patience, c.BodyBytes = true, 1, 0, 1<<10
		c.Origins = origin.Policy{Hosts: []string{"echo.demo.svc"}}
	}
	open := func(t *testing.T) (url string, g *guard) {
		_, url = startAdapter(t, inPod)
		return url, newGuard(t, nil)
	}
	guarded := func(t *testing.T) (url string, g *guard) {
		g = newGuard(t, func(document *adapterapi.Access) { document.Scopes = nil })
		_, url = startAdapter(t, g.guarded(inPod))
		return url, g
	}
	ended := func(reason func(*config.Config)) func(*testing.T, *refusedCase) (string, *guard) {
		return func(t *testing.T, request *refusedCase) (string, *guard) {
			adapter, url := startAdapter(t, reason)
			c := mustOpen(t, url)
			request.headers = append(request.headers, "Mcp-Session-Id", c.session)
			for adapter.env.Sessions.Find(c.session) != nil {
				time.Sleep(time.Millisecond)
			}
			return url, newGuard(t, nil)
		}
	}
	without := func(start func(*testing.T) (string, *guard)) func(*testing.T, *refusedCase) (string, *guard) {
		return func(t *testing.T, _ *refusedCase) (string, *guard) { return start(t) }
	}
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for name, test := range map[string]struct {
		start   func(*testing.T, *refusedCase) (url string, g *guard)
		request refusedCase
	}{
		"no token":        {without(guarded), refusedCase{body: ping, status: 401}},
		"foreign token":   {without(guarded), refusedCase{body: ping, token: "Bearer e30.e30.e30", status: 401}},
		"no rule":         {without(guarded), refusedCase{body: initializeBody, token: "nobody", status: 403}},
		"blocked":         {without(guarded), refusedCase{body: initializeBody, token: "mallory", status: 403}},
		"host":            {without(open), refusedCase{body: ping, headers: []string{"Host", "evil.example.com"}, status: 403}},
		"origin":          {without(open), refusedCase{body: ping, headers: []string{"Origin", "https://evil.example.com"}, status: 403}},
		"path":            {without(open), refusedCase{path: "/", body: ping, status: 404}},
		"path of 2024":    {without(open), refusedCase{path: "/sse", method: http.MethodGet, status: 404}},
		"unknown session": {without(open), refusedCase{body: ping, headers: []string{"Mcp-Session-Id", "x"}, status: 404}},
		"idle session":    {ended(func(c *config.Config) { c.IdleTimeout = time.Second }), refusedCase{body: ping, status: 404}},
		"old session":     {ended(func(c *config.Config) { c.MaxLifetime = time.Second }), refusedCase{body: ping, status: 404}},
		"no session":      {without(open), refusedCase{body: ping, status: 400}},
		"large body":      {without(open), refusedCase{body: strings.Repeat(" ", 2<<10), status: 413}},
		"type":            {without(open), refusedCase{body: ping, headers: []string{"Content-Type", "text/plain"}, status: 415}},
		"accept":          {without(open), refusedCase{body: ping, headers: []string{"Accept", "text/html"}, status: 406}},
		"full": {func(t *testing.T, _ *refusedCase) (string, *guard) {
			url, g := open(t)
			mustOpen(t, url)
			return url, g
		}, refusedCase{body: initializeBody, status: 503}},
		"command not there": {func(t *testing.T, _ *refusedCase) (string, *guard) {
			_, url := startAdapterOn(t, newListener(t), inPod, "/nope")
			return url, newGuard(t, nil)
		}, refusedCase{body: initializeBody, status: 503}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := test.request
			url, g := test.start(t, &request)
			if request.token != "" && !strings.HasPrefix(request.token, "Bearer ") {
				request.token = g.token(request.token, nil)
			}
			if request.method == "" {
				request.method = http.MethodPost
			}
			if request.path != "" {
				url = strings.TrimSuffix(url, Path) + request.path
			}
			got := g.ask(request.method, url, request.token, request.body, request.headers...)
			if got.status != request.status {
				t.Fatalf("got %d %s, want %d", got.status, got.message, request.status)
			}
			text := words(got.message)
			for _, message := range messages {
				if strings.HasPrefix(message.Heading, "HTTP") && strings.Contains(message.Heading, strconv.Itoa(got.status)) && message.Matches(text) {
					return
				}
			}
			t.Errorf("the page has no message for %d %q", got.status, text)
		})
	}
}

// words are those of a JSON-RPC error, or the whole body.
func words(body string) string {
	var answer struct{ Error struct{ Message string } }
	if json.NewDecoder(bytes.NewReader([]byte(body))).Decode(&answer) == nil && answer.Error.Message != "" {
		return answer.Error.Message
	}
	return body
}
