package remote

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

func toolCall(id any, tool, text string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":"tools/call","params":{"name":%q,"arguments":{"text":%q},"_meta":{"progressToken":7}}}`, id, tool, text)
}

// useStateful goes through what a session has. The server's own news come where the
// transport has a stream for them.
func useStateful(t *testing.T, c *conversation) {
	t.Helper()
	if got := c.ask(toolCall(1, "echo", "hello")); !strings.Contains(got, `"text":"hello"`) || !strings.Contains(got, `"id":1`) {
		t.Errorf("echo: %s", got)
	}
	if got := c.ask(toolCall(`"two"`, "progress", "")); !strings.Contains(got, "done") {
		t.Errorf("progress: %s", got)
	}
	for i := range 3 {
		if got := within(t, "progress", c.others); !strings.Contains(got, `"progressToken":7`) || !strings.Contains(got, fmt.Sprintf(`"progress":%d`, i)) {
			t.Errorf("progress %d: %s", i, got)
		}
	}
	// T-07: a request of the server's while a call is in flight.
	c.send(toolCall(3, "elicit", ""))
	asked := within(t, "request of the server", c.others)
	_, id, _ := strings.Cut(asked, `"id":`)
	id, _, _ = strings.Cut(id, ",")
	if !strings.Contains(asked, "elicitation/create") {
		t.Fatalf("the server asks %s", asked)
	}
	c.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"decline"}}`)
	if got := within(t, "answer", c.answers); !strings.Contains(got, "decline") || !strings.Contains(got, `"id":3`) {
		t.Errorf("elicit: %s", got)
	}
	if got := c.ask(toolCall(4, "grow", "more")); !strings.Contains(got, `"id":4`) {
		t.Errorf("grow: %s", got)
	}
	if got := within(t, "news", c.others); !strings.Contains(got, "notifications/tools/list_changed") {
		t.Errorf("news: %s", got)
	}
}

func withElicitation(revision string) string {
	return strings.NewReplacer("2025-11-25", revision, `"capabilities":{}`, `"capabilities":{"elicitation":{}}`).Replace(initializeBody)
}

// A connection is to a real server what a client is.
func TestStateful(t *testing.T) {
	for name, options := range map[string]*mcp.StreamableHTTPOptions{
		"streams": nil, "JSON": {JSONResponse: true}, "events with ids": {EventStore: mcp.NewMemoryEventStore(nil)},
	} {
		for _, revision := range revisions {
			t.Run(name+" "+revision, func(t *testing.T) {
				b := newBackend(t, streamableServer(options))
				dialed, err := New(connectionOptions(b.URL("/mcp"))).DialStateful(t.Context(), &caller.Caller{Authorization: []string{"Bearer x"}})
				if err != nil {
					t.Fatal(err)
				}
				c := converse(t, dialed)
				if got := c.ask(withElicitation(revision)); !strings.Contains(got, revision) {
					t.Fatalf("initialize: %s", got)
				}
				c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				gomega.NewWithT(t).Eventually(dialed.(*Stateful).streams.Load).WithTimeout(hang.Guard).Should(gomega.BeTrue())
				useStateful(t, c)
				dialed.Close()
				if err := within(t, "end", c.ended); !errors.Is(err, session.ErrEnded) {
					t.Errorf("ended by %v", err)
				}
				gomega.NewWithT(t).Eventually(func() int { return len(b.Requests("DELETE")) }).WithTimeout(hang.Guard).Should(gomega.Equal(1))
				checkRequests(t, b, revision)
			})
		}
	}
}

// Many servers discard notifications while no stream is open for them. Users of the connection can wait for it.
func TestAwaitStream(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"a stream":  func(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/event-stream") },
		"no stream": func(w http.ResponseWriter) { w.WriteHeader(http.StatusMethodNotAllowed) },
	} {
		t.Run(name, func(t *testing.T) {
			waited, tooEarly := make(chan struct{}), make(chan bool, 1)
			b := newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				switch {
				case r.Method == http.MethodGet:
					select {
					case <-waited:
						tooEarly <- true
					case <-time.After(streamWait / 10):
						tooEarly <- false
					}
					answer(w)
					_ = http.NewResponseController(w).Flush()
					if name == "a stream" {
						<-r.Context().Done()
					}
				case strings.Contains(string(body), `"initialize"`):
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`)
				default:
					w.WriteHeader(http.StatusAccepted)
				}
			}))
			dialed, err := New(connectionOptions(b.URL("/mcp"))).DialStateful(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			c := converse(t, dialed)
			c.ask(initializeBody)
			began := time.Now()
			c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			dialed.(*Stateful).AwaitStream(t.Context())
			took := time.Since(began)
			close(waited)
			if within(t, "GET", tooEarly) && took < streamWait {
				t.Errorf("waited %s, and the server has not answered yet", took)
			}
		})
	}
}

// A server may answer GET only when it has an event.
func TestAwaitStreamOfAServerThatDoesNotAnswer(t *testing.T) {
	b := newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			<-r.Context().Done()
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	dialed, err := New(connectionOptions(b.URL("/mcp"))).DialStateful(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	converse(t, dialed).send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		dialed.(*Stateful).AwaitStream(t.Context())
	}()
	within(t, "end of the wait", waited)
	within(t, "end of all waits", dialed.(*Stateful).settled)
}

// checkRequests looks at what the server saw of a session.
func checkRequests(t *testing.T, b *backend, revision string) {
	t.Helper()
	id := ""
	for _, method := range []string{"POST", "GET", "DELETE"} {
		for i, got := range b.Requests(method) {
			first := method == "POST" && i == 0
			if method == "POST" && i == 1 {
				id = got.Header.Get(headerSession)
			}
			want := map[string]string{
				"Authorization": "Bearer x", "Origin": "", "Cookie": "", "Mcp-Param-X": "", "Accept-Encoding": "identity", "User-Agent": "",
				headerSession: id, headerRevision: revision,
			}
			if first {
				want[headerRevision] = ""
			}
			for name, value := range want {
				if got.Header.Get(name) != value {
					t.Errorf("%s %d: %s is %q, want %q", method, i, name, got.Header.Get(name), value)
				}
			}
		}
	}
	if id == "" {
		t.Error("T-16: the server sees no session")
	}
}

// A server with HTTP+SSE is reached in the same way.
func TestSSE(t *testing.T) {
	b := newBackend(t, sseServer())
	dialed, err := newSSEStage(t, b, nil).server.DialSSE(t.Context(), &caller.Caller{Authorization: []string{"Bearer x"}})
	if err != nil {
		t.Fatal(err)
	}
	c := converse(t, dialed)
	if got := c.ask(withElicitation("2025-11-25")); !strings.Contains(got, "2025-11-25") {
		t.Fatalf("initialize: %s", got)
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	useStateful(t, c)
	for _, got := range append(b.Requests("POST"), b.Requests("GET")...) {
		if got.Header.Get("Authorization") != "Bearer x" || got.Header.Get("Origin") != "" {
			t.Errorf("the server sees %v", got.Header)
		}
	}
	dialed.Close()
	if err := within(t, "end", c.ended); !errors.Is(err, session.ErrEnded) {
		t.Errorf("ended by %v", err)
	}
}
