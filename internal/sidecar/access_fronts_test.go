package sidecar

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/test/hang"
)

// verdict is what the adapter decides about a request.
type verdict string

const (
	allowed verdict = "allowed"
	denied  verdict = "denied"
	scoped  verdict = "scoped" // the token lacks a scope, and the client is told so
)

// use is a request, and what it uses of a list.
type use struct {
	list, member, key, name string
	method, params          string
}

// catalog is what the server matrix has, by the request that uses it.
var catalog = map[string]use{
	"echo":     {"tools/list", "tools", "name", "echo", "tools/call", `"name":"echo","arguments":{"text":"hello"}`},
	"revision": {"tools/list", "tools", "name", "revision", "tools/call", `"name":"revision","arguments":{}`},
	"count":    {"tools/list", "tools", "name", "count", "tools/call", `"name":"count","arguments":{"key":"k","event":"e"}`},
	"seen":     {"tools/list", "tools", "name", "seen", "tools/call", `"name":"seen","arguments":{"key":"k"}`},
	"grow":     {"tools/list", "tools", "name", "grow", "tools/call", `"name":"grow","arguments":{}`},
	"greeting": {"prompts/list", "prompts", "name", "greeting", "prompts/get", `"name":"greeting","arguments":{"name":"you"}`},
	"plain":    {"resources/list", "resources", "uri", "matrix://plain", "resources/read", `"uri":"matrix://plain"`},
	"item":     {"resources/templates/list", "resourceTemplates", "uriTemplate", "matrix://item/{key}", "resources/read", `"uri":"matrix://item/k"`},
}

// verdicts are what accessRules mean. Whatever a user is not said to have here is denied.
var verdicts = map[string]map[string]verdict{
	"alice":   {"echo": allowed, "count": allowed, "greeting": allowed, "item": allowed},
	"bob":     {"revision": allowed, "plain": allowed},
	"carol":   {"echo": allowed, "revision": scoped, "count": scoped, "seen": scoped, "greeting": scoped},
	"root":    {"echo": allowed, "revision": allowed, "count": allowed, "seen": allowed, "greeting": allowed, "plain": allowed, "item": allowed},
	"mallory": nil, // is blocked
	"nobody":  nil, // has a token, and no rule
}

// serveMatrix runs the server as one that speaks HTTP.
func serveMatrix(t *testing.T, mode string) *url.URL {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, matrixServer, "-http", mode, "-state", t.TempDir()+"/state")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = command.Wait() // it was killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// matrixBackends are all ways in which the adapter reaches a server, with the kinds of clients that it has
// for it.
var matrixBackends = map[string]struct {
	command []string // besides the server
	http    string
	change  func(*config.Config)
	without []string // the kinds of clients that it has not
}{
	"a process for each session":  {},
	"one process for all":         {change: shared, without: []string{"batch"}},
	"sessions only":               {command: []string{"legacy"}},
	"2026-07-28 only":             {command: []string{"modern"}},
	"HTTP, answers in events":     {http: "legacy", without: []string{"sse"}},
	"HTTP, answers in JSON":       {http: "json", without: []string{"sse"}},
	"HTTP, 2026-07-28 only":       {http: "modern", without: []string{"sse"}},
	"HTTP+SSE":                    {http: "sse", change: func(c *config.Config) { c.Transport = config.SSE }},
	"one process, sessions only":  {command: []string{"legacy"}, change: shared, without: []string{"batch"}},
	"one process, and 2026-07-28": {command: []string{"modern"}, change: shared, without: []string{"batch"}},
}

// shared has one process serve all clients. Its revision is the newest, which has no batches.
func shared(c *config.Config) { c.Shared = true }

// startMatrix starts an adapter of one kind, and waits until it knows its server.
func startMatrix(t *testing.T, g *guard, name string) (url string) {
	t.Helper()
	backend := matrixBackends[name]
	command := []string{matrixServer}
	if backend.command != nil {
		command = []string{eraFilter, backend.command[0], matrixServer}
	}
	adapter, url := startAdapterOn(t, newListener(t), g.guarded(func(c *config.Config) {
		c.LegacySSE = !slices.Contains(backend.without, "sse")
		c.MaxSessions = 64
		if backend.http != "" {
			c.Transport, c.UpstreamURL = config.StreamableHTTP, serveMatrix(t, backend.http)
		}
		if backend.change != nil {
			backend.change(c)
		}
	}), command...)
	gomega.NewWithT(t).Eventually(func() bool {
		state, _ := adapter.env.Keeper.State()
		return state.Ready
	}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
	return url
}

// Every client of every server sees the same verdicts. What is listed can be called, and
// what cannot be called is not listed, unless only scopes are missing.
func TestEveryFrontHasTheSameVerdicts(t *testing.T) {
	t.Parallel()
	for name, backend := range matrixBackends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, nil)
			url := startMatrix(t, g, name)
			for kind, speak := range speakers {
				if slices.Contains(backend.without, kind) {
					continue
				}
				t.Run(kind, func(t *testing.T) {
					inside := *g
					inside.t = t
					for user, want := range verdicts {
						checkVerdicts(t, user, speak(&inside, url, inside.token(user, nil)), want)
					}
				})
			}
		})
	}
}

// Without tokens, rules apply to every caller, and hidden tools are hidden from every caller.
func TestEveryFrontHasTheSameVerdictsWithoutTokens(t *testing.T) {
	t.Parallel()
	everything := maps.Clone(verdicts["root"])
	rules := func(a *adapterapi.Access) {
		a.Rules = []adapterapi.AccessRule{{
			Subjects: []adapterapi.AccessSubject{{Kind: adapterapi.SubjectGroup, Name: adapterapi.GroupUnauthenticated}},
			Tools:    []string{"echo", "grow"}, Resources: []string{"matrix://plain"},
		}}
	}
	for name, test := range map[string]struct {
		rules func(*adapterapi.Access)
		want  map[string]verdict
	}{
		"hidden tools": {func(a *adapterapi.Access) { a.Rules = nil }, everything},
		"rules":        {rules, map[string]verdict{"echo": allowed, "plain": allowed}},
	} {
		for _, backend := range []string{"a process for each session", "one process for all", "HTTP, answers in events", "HTTP, 2026-07-28 only"} {
			t.Run(name+"/"+backend, func(t *testing.T) {
				t.Parallel()
				g := newGuard(t, func(a *adapterapi.Access) {
					a.Mode, a.Issuers = adapterapi.AccessNone, nil
					test.rules(a)
				})
				url := startMatrix(t, g, backend)
				for kind, speak := range speakers {
					if slices.Contains(matrixBackends[backend].without, kind) {
						continue
					}
					for _, token := range []string{"", "Bearer " + g.issuer.Mint(map[string]any{"sub": "root"})} { // the adapter ignores the token
						checkVerdicts(t, kind, speak(g, url, token), test.want)
					}
				}
			})
		}
	}
}

func checkVerdicts(t *testing.T, user string, s speaker, want map[string]verdict) {
	t.Helper()
	status := s.open()
	if want == nil {
		if status != http.StatusForbidden {
			t.Errorf("%s connects: %d, want 403", user, status)
		}
		return
	}
	if status != http.StatusOK {
		t.Errorf("%s connects: %d, want 200", user, status)
		return
	}
	defer s.close()
	got, listed, wantListed := map[string]verdict{}, map[string][]string{}, map[string][]string{}
	for what, use := range catalog {
		got[what] = verdictOn(t, s.ask(use.method, use.params))
		if _, asked := listed[use.list]; !asked {
			listed[use.list] = names(t, s.ask(use.list, ""), use.member, use.key)
		}
		if want[what] == allowed || want[what] == scoped {
			wantListed[use.list] = append(wantListed[use.list], use.name)
		}
	}
	full := maps.Clone(want)
	for what := range catalog {
		if full[what] == "" {
			full[what] = denied
		}
	}
	if diff := cmp.Diff(full, got); diff != "" {
		t.Errorf("%s may call (-want +got):\n%s", user, diff)
	}
	for list := range listed {
		slices.Sort(wantListed[list])
		seen := slices.DeleteFunc(listed[list], func(name string) bool { return !isInCatalog(name) })
		if diff := cmp.Diff(wantListed[list], seen); diff != "" && len(wantListed[list])+len(seen) > 0 {
			t.Errorf("%s sees in %s (-want +got):\n%s", user, list, diff)
		}
	}
}

// isInCatalog is false for the other tools of the server, which no test calls.
func isInCatalog(name string) bool {
	for _, use := range catalog {
		if use.name == name {
			return true
		}
	}
	return false
}

func verdictOn(t *testing.T, got shown) verdict {
	t.Helper()
	challenge := got.header.Get("WWW-Authenticate")
	switch {
	case got.status == http.StatusForbidden && strings.Contains(challenge, `error="insufficient_scope"`) && strings.Contains(challenge, `scope="mcp:use deep"`):
		return scoped
	case got.status == http.StatusForbidden && challenge == "":
		return denied
	case got.status == http.StatusOK && strings.Contains(got.message, `"id":7`) && !strings.Contains(got.message, "-32603"):
		return allowed
	}
	t.Errorf("got %d %s, challenge %q", got.status, got.message, challenge)
	return ""
}

// names returns the names in the answer to a list, sorted.
func names(t *testing.T, got shown, member, key string) (all []string) {
	t.Helper()
	var answer struct {
		Result map[string]json.RawMessage
	}
	var entries []map[string]any
	if err := json.Unmarshal([]byte(strings.Trim(got.message, "[]")), &answer); err != nil || got.status != http.StatusOK {
		t.Fatalf("list of %s: %d %s: %v", member, got.status, got.message, err)
	}
	if err := json.Unmarshal(answer.Result[member], &entries); err != nil {
		t.Fatalf("list of %s: %s: %v", member, got.message, err)
	}
	for _, entry := range entries {
		all = append(all, entry[key].(string))
	}
	slices.Sort(all)
	return all
}
