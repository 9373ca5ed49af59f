package sidecar

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/test/hang"
)

// worksOnTasks is a server of tasks that does not ask whose they are.
func worksOnTasks(t *testing.T) *scripted {
	t.Helper()
	return &scripted{odd: map[string]func(http.ResponseWriter, *http.Request, string){
		"begins":           says(200, typeJSON, answerOf("ID", `{"task":{"taskId":"secret-task","status":"working"}}`)),
		"begins in events": says(200, typeEvents, "data: "+answerOf("ID", `{"task":{"taskId":"secret-task","status":"working"}}`)+"\n\n"),
		"begins 2026":      says(200, typeJSON, answerOf("ID", `{"resultType":"task","taskId":"secret-task"}`)),
		"works":            says(200, typeJSON, answerOf("ID", `{"taskId":"secret-task","status":"working"}`)),
		"lists":            says(200, typeJSON, answerOf("ID", `{"tasks":[{"taskId":"secret-task"},{"taskId":"of nobody"}]}`)),
		"lists in events":  says(200, typeEvents, "data: "+answerOf("ID", `{"tasks":[{"taskId":"secret-task"},{"taskId":"of nobody"}]}`)+"\n\n"),
		"lists as text":    says(200, "text/plain", answerOf("ID", `{"tasks":[{"taskId":"secret-task"},{"taskId":"of nobody"}]}`)),
		"lists nonsense":   says(200, typeJSON, `{"tasks":["secret-task"`),
		"acknowledges":     says(200, typeEvents, "data: "+`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`+"\n\ndata: "+answerOf("ID", `{"resultType":"complete"}`)+"\n\n"),
	}}
}

const foreignTask = "there is no such task"

// For other callers, a task of an HTTP server does not exist, and the server does not learn that they asked.
func TestTasksOfHTTPServersBelongToTheirUser(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stateless bool
		begins    string
	}{
		"sessions":           {false, "begins"},
		"sessions, events":   {false, "begins in events"},
		"stateless":          {true, "begins 2026"},
		"stateless, as 2025": {true, "begins"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := worksOnTasks(t)
			g := newGuard(t, echoForAll)
			url := startScripted(t, g, server, config.StreamableHTTP)
			connect := func(user string) func(odd, method, params string) shown {
				if test.stateless {
					return func(odd, method, params string) shown {
						return (&oddSpeaker{g, url, g.token(user, nil), odd}).ask(method, params)
					}
				}
				s := &sessionSpeaker{guard: g, url: url, token: g.token(user, nil), revision: "2025-11-25"}
				if status := s.open(); status != http.StatusOK {
					t.Fatalf("%s connects: %d", user, status)
				}
				return func(odd, method, params string) shown {
					return g.ask(http.MethodPost, url, s.token, requestText(method, params), append(s.headers(), "X-Odd", odd)...)
				}
			}
			alice, bob := connect("alice"), connect("bob")
			if got := alice(test.begins, "tools/call", `"name":"echo","task":{}`); !strings.Contains(got.message, "secret-task") {
				t.Fatalf("alice begins a task: %d %s", got.status, got.message)
			}
			server.take()
			for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel", "tasks/update", "tasks/new"} {
				if got := alice("works", method, `"taskId":"secret-task"`); got.status != 200 || !strings.Contains(got.message, "working") || len(server.take()) != 1 {
					t.Errorf("%s by alice: %d %s", method, got.status, got.message)
				}
				got, unknown := bob("works", method, `"taskId":"secret-task"`), bob("works", method, `"taskId":"unknown"`)
				if got.status != 200 || !strings.Contains(got.message, `"id":7`) || !strings.Contains(got.message, "-32602") || !strings.Contains(got.message, foreignTask) || got.message != unknown.message {
					t.Errorf("%s by bob: %d %s, unknown: %s", method, got.status, got.message, unknown.message)
				}
			}
			listen := `"notifications":{"taskIds":["secret-task"]}`
			if got := bob("acknowledges", "subscriptions/listen", listen); got.status != 200 || !strings.Contains(got.message, "-32602") || !strings.Contains(got.message, foreignTask) {
				t.Errorf("bob listens: %d %s", got.status, got.message)
			}
			if got := server.take(); len(got) > 0 {
				t.Errorf("the server gets %v from bob", got)
			}
			if got := alice("acknowledges", "subscriptions/listen", listen); got.status != 200 || strings.Contains(got.message, "error") {
				t.Errorf("alice listens: %d %s", got.status, got.message)
			}
			for _, odd := range []string{"lists", "lists in events", "lists as text"} {
				if got := alice(odd, "tasks/list", `"cursor":"c"`); !strings.Contains(got.message, `{"tasks":[{"taskId":"secret-task"}]}`) {
					t.Errorf("%s: alice sees %d %s", odd, got.status, got.message)
				}
				if got := bob(odd, "tasks/list", `"cursor":"c"`); !strings.Contains(got.message, `{"tasks":[]}`) {
					t.Errorf("%s: bob sees %d %s", odd, got.status, got.message)
				}
			}
			if got := bob("lists nonsense", "tasks/list", `"cursor":"c"`); strings.Contains(got.message, "secret") || !strings.Contains(got.message, "-32603") {
				t.Errorf("bob sees %d %s", got.status, got.message)
			}
		})
	}
}

// One task of another caller refuses a batch.
func TestBatchWithATaskOfAnother(t *testing.T) {
	t.Parallel()
	server := worksOnTasks(t)
	server.sessionsOnly = true
	g := newGuard(t, echoForAll)
	url := startScripted(t, g, server, config.StreamableHTTP)
	s := &sessionSpeaker{guard: g, url: url, token: g.token("bob", nil), revision: "2025-03-26"}
	if status := s.open(); status != http.StatusOK {
		t.Fatalf("bob connects: %d", status)
	}
	server.take()
	for _, text := range []string{
		`[` + requestText("ping", "") + `,` + requestText("tasks/get", `"taskId":"secret-task"`) + `]`,
		`{"jsonrpc":"2.0","method":"tasks/cancel","params":{"taskId":"secret-task"}}`,
	} {
		got := g.ask(http.MethodPost, url, s.token, text, s.headers()...)
		if got.status != http.StatusBadRequest || !strings.Contains(got.message, "-32602") || len(server.take()) > 0 {
			t.Errorf("%s: %d %s", text, got.status, got.message)
		}
	}
}

// Sessions of the adapter's own with an HTTP server do not go through the proxy. They are for clients of the
// oldest transport, and for servers of it. There, too, a caller cannot reach the task of another caller.
func TestTasksInSessionsOfTheAdapter(t *testing.T) {
	t.Parallel()
	const task = `{"task":{"taskId":"secret-task","status":"working"}}`
	for name, test := range map[string]struct {
		client, method string // which begins a task
		transport      config.Transport
	}{
		"Streamable HTTP": {"sse", "tools/call", config.StreamableHTTP},
		"HTTP+SSE":        {"session", "tools/list", config.SSE},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, everythingForAll)
			oldest := &scriptedSSE{}
			adapter, url := startAdapter(t, g.guarded(func(c *config.Config) {
				c.Transport, c.LegacySSE, c.UpstreamURL = test.transport, true, serveHTTP(t, answersCalls(task))
				if c.Transport == config.SSE {
					c.UpstreamURL = serveHTTP(t, oldest)
				}
			}))
			gomega.NewWithT(t).Eventually(func() bool {
				state, _ := adapter.env.Keeper.State()
				return state.Catalog != nil
			}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
			oldest.set(answerOf("ID", task))
			connect := func(user string) speaker {
				s := speakers[test.client](g, url, g.token(user, nil))
				if status := s.open(); status != http.StatusOK {
					t.Fatalf("%s connects: %d", user, status)
				}
				return s
			}
			alice, bob := connect("alice"), connect("bob")
			defer alice.close()
			defer bob.close()
			if got := alice.ask(test.method, `"name":"echo"`); !strings.Contains(got.message, "secret-task") {
				t.Fatalf("alice begins a task: %d %s", got.status, got.message)
			}
			if got := alice.ask("tasks/get", `"taskId":"secret-task"`); got.status != 200 || strings.Contains(got.message, foreignTask) {
				t.Errorf("alice asks for her task: %d %s", got.status, got.message)
			}
			if got := bob.ask("tasks/get", `"taskId":"secret-task"`); got.status != 200 || !strings.Contains(got.message, `"id":7`) || !strings.Contains(got.message, "-32602") || !strings.Contains(got.message, foreignTask) {
				t.Errorf("bob asks for alice's task: %d %s", got.status, got.message)
			}
		})
	}
}

// answersCalls is a server with sessions that answers each call, and each question about a task, with the result.
func answersCalls(result string) http.Handler {
	usual := &scripted{sessionsOnly: true}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		e, err := rpc.Scan(body)
		if err == nil && (string(e.Method) == "tools/call" || strings.HasPrefix(string(e.Method), "tasks/")) {
			reply(w, string(e.ID.Of(body)), result)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		usual.ServeHTTP(w, r)
	})
}
