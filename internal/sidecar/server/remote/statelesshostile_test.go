package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
	"github.com/slipway-mcp/slipway/test/hang"
)

func pipeStateless(t *testing.T, handler http.HandlerFunc) *conversation {
	t.Helper()
	return converse(t, &Stateless{link: newLink(newPipeServer(t, handler), nil)})
}

// Whatever a server answers, the request has one answer.
func TestStatelessAnswers(t *testing.T) {
	status := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"JSON":                 {status(200, typeJSON, pong), `"result":{}`},
		"stream":               {status(200, typeEvents, "data: "+pong+"\n\n"), `"result":{}`},
		"M-20 404":             {status(404, typeJSON, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`), "-32601"},
		"404, plain":           {status(404, "text/plain", "no"), "status 404: no"},
		"M-19 no id":           {status(400, typeJSON, `{"jsonrpc":"2.0","error":{"code":-32022,"message":"no","data":{"supported":[]}}}`), `"id":1,"error":{"code":-32022,"message":"no","data":{"supported":[]}}`},
		"401":                  {status(401, "", ""), "status 401"},
		"wrong id":             {status(200, typeJSON, strings.Replace(pong, "1", "2", 1)), "no answer to the request"},
		"wrong id in a stream": {status(200, typeEvents, "data: "+strings.Replace(pong, "1", "2", 1)+"\n\n"), "without an answer"},
		"M-10 breaks off":      {status(200, typeEvents, "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n"), "without an answer"},
		"event too large":      {status(200, typeEvents, "data: "+strings.Repeat("x", 5<<20)), "larger than the limit"},
		"too large":            {status(200, typeJSON, strings.Repeat(" ", 5<<20)), "larger than the limit"},
		"nothing":              {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "did not answer"},
		"redirect":             {http.RedirectHandler("http://evil.example/", http.StatusTemporaryRedirect).ServeHTTP, "redirection"},
		"refused for headers":  {status(400, typeJSON, `{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"no"}}`), "-32020"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests := 0
				c := pipeStateless(t, func(w http.ResponseWriter, r *http.Request) {
					requests++
					test.handler(w, r)
				})
				if got := c.ask(enveloped(1, "prompts/list", "")); !strings.Contains(got, test.want) || !strings.Contains(got, `"id":1`) {
					t.Errorf("got %s, want %q", got, test.want)
				}
				time.Sleep(time.Hour) // of the test's own time
				if len(c.answers) != 0 || len(c.ended) != 0 || requests != 1 {
					t.Errorf("%d more answers, %d ends, %d requests", len(c.answers), len(c.ended), requests)
				}
			})
		})
	}
}

// The adapter distinguishes a server that is not there from one that does not answer: it has
// not sent the request, and can use the connection again.
func TestStatelessServerAway(t *testing.T) {
	b := newBackend(t, statelessServer())
	server := New(connectionOptions(b.URL("/mcp")))
	// A request on a connection that the server closes in that moment may have been read. It
	// has an answer, which says so.
	server.endpoint.Transport.DisableKeepAlives = true
	dialed, err := server.DialStateless(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := converse(t, dialed)
	c.ask(enveloped(1, "tools/list", ""))
	b.Stop()
	if err := c.server.Send(t.Context(), session.Message{Bytes: []byte(enveloped(1, "tools/list", ""))}); err == nil || !IsDown(err) {
		t.Errorf("send: %v", err)
	}
	b.Start(statelessServer())
	if got := c.ask(enveloped(1, "tools/list", "")); !strings.Contains(got, "echo") || len(c.answers) != 0 {
		t.Errorf("got %s", got)
	}
	b.Stop()
	if _, err := server.DialStateless(t.Context()); err == nil {
		t.Error("dial: no error")
	}
}

// The adapter reads endless events until the client leaves.
func TestStatelessEndlessEvents(t *testing.T) {
	gone := make(chan struct{})
	b := newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		for r.Context().Err() == nil {
			say(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n")
		}
	}))
	c := dialStateless(t, b)
	c.send(enveloped(1, "tools/list", ""))
	within(t, "an event", c.others)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	within(t, "end of the stream", gone)
}

// picky is a server that refuses a call of its tool without the header that it wants.
type picky struct {
	mu     sync.Mutex
	wants  string // the name of the header; "" refuses every call
	list   func(cursor string) string
	lists  int
	calls  int
	status int // of the list
}

func (p *picky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", typeJSON)
	if r.Header.Get(front.HeaderMethod) == "tools/list" {
		p.lists++
		_, cursor, _ := strings.Cut(string(body), `"cursor":"`)
		cursor, _, _ = strings.Cut(cursor, `"`)
		w.WriteHeader(p.status)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":{%s}}`, p.list(cursor))
		return
	}
	p.calls++
	if p.wants == "" || r.Header.Get(p.wants) != "here" {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"no"}}`)
		return
	}
	_, _ = io.WriteString(w, pong)
}

func pickyTool(header string) string {
	return fmt.Sprintf(`"tools":[{"name":"t","inputSchema":{"properties":{"where":{"type":"string","x-mcp-header":%q}}}}]`, header)
}

// What a server says of its tools may be wrong, late or endless; a call is refused then
// by the server itself.
func TestStatelessListsTools(t *testing.T) {
	one := func(header string) func(string) string { return func(string) string { return pickyTool(header) } }
	for name, test := range map[string]struct {
		server       *picky
		want         string
		calls, lists int
	}{
		"named": {&picky{wants: "Mcp-Param-A", list: one("A")}, "result", 2, 1},
		"on another page": {&picky{wants: "Mcp-Param-A", list: func(cursor string) string {
			if cursor == "" {
				return `"tools":[{"name":"u"}],"nextCursor":"2"`
			}
			return pickyTool("A")
		}}, "result", 2, 2},
		"not named":       {&picky{wants: "Mcp-Param-B", list: one("A")}, "-32020", 2, 1},
		"invalid":         {&picky{wants: "Mcp-Param-A", list: one("a b")}, "-32020", 1, 1},
		"refuses all":     {&picky{list: one("A")}, "-32020", 2, 1},
		"no tools":        {&picky{list: func(string) string { return "" }}, "-32020", 1, 1},
		"no list":         {&picky{list: one("A"), status: 500}, "-32020", 1, 1},
		"list in circles": {&picky{list: func(string) string { return `"tools":[],"nextCursor":"2"` }}, "-32020", 1, 2},
		"no text":         {&picky{list: func(string) string { return `"tools":7` }}, "-32020", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := test.server
				if server.status == 0 {
					server.status = http.StatusOK
				}
				c := pipeStateless(t, server.ServeHTTP)
				if got := c.ask(enveloped(1, "tools/call", `"name":"t","arguments":{"where":"here"},`)); !strings.Contains(got, test.want) {
					t.Errorf("got %s, want %q", got, test.want)
				}
				if server.calls != test.calls || server.lists != test.lists {
					t.Errorf("%d calls, %d lists, want %d, %d", server.calls, server.lists, test.calls, test.lists)
				}
			})
		})
	}
}

// Calls that are refused at the same time ask for the list once. It is for all of them, so it
// does not end with the first.
func TestStatelessListsToolsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		lists, release := 0, make(chan struct{})
		c := pipeStateless(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			envelope, err := rpc.Scan(body)
			if err != nil {
				t.Error(err)
			}
			id := string(envelope.ID.Of(body))
			w.Header().Set("Content-Type", typeJSON)
			switch {
			case string(envelope.Method) == "tools/list":
				mu.Lock()
				lists++
				mu.Unlock()
				<-release
				_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{%s}}`, id, pickyTool("A"))
			case r.Header.Get("Mcp-Param-A") == "":
				w.WriteHeader(http.StatusBadRequest)
				_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"no"}}`, id)
			default:
				_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
			}
		})
		const calls = 4
		for id := range calls {
			c.send(enveloped(id+1, "tools/call", `"name":"t","arguments":{"where":"here"},`))
			synctest.Wait()
		}
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		synctest.Wait()
		close(release)
		for range calls - 1 {
			if got := <-c.answers; !strings.Contains(got, `"result"`) {
				t.Errorf("got %s", got)
			}
		}
		if lists != 1 {
			t.Errorf("the server was asked for %d lists", lists)
		}
	})
}

// The header of a tool changes, and is then found out again, but not with every call of
// a server that refuses all of them.
func TestStatelessListsToolsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &picky{wants: "Mcp-Param-A", status: http.StatusOK}
		server.list = func(string) string { return pickyTool(strings.TrimPrefix(server.wants, "Mcp-Param-")) }
		c := pipeStateless(t, server.ServeHTTP)
		call := enveloped(1, "tools/call", `"name":"t","arguments":{"where":"here"},`)
		for _, test := range []struct {
			wants, want  string
			calls, lists int
			after        time.Duration
		}{
			{"Mcp-Param-A", "result", 2, 1, 0},
			{"Mcp-Param-A", "result", 1, 0, 0},
			{"Mcp-Param-B", "-32020", 1, 0, 0},
			{"Mcp-Param-B", "result", 2, 1, 2 * toolindex.Fresh.Listed},
			{"Mcp-Param-B", "result", 1, 0, time.Hour},
		} {
			time.Sleep(test.after) // of the test's own time
			server.wants, server.calls, server.lists = test.wants, 0, 0
			if got := c.ask(call); !strings.Contains(got, test.want) || server.calls != test.calls || server.lists != test.lists {
				t.Errorf("%+v: got %s, %d calls, %d lists", test, got, server.calls, server.lists)
			}
			synctest.Wait()
		}
	})
}

// A server that refuses a request for its headers, and is away when the request comes again, has the
// request answered: its caller was told that the server has read it.
func TestStatelessServerAwayAfterRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPipeServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"no"}}`)
		}))
		transport := s.endpoint.Transport
		dial, dials := transport.DialContext, 0
		transport.DisableKeepAlives = true
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials++; dials > 1 {
				return nil, &net.OpError{Op: "dial", Err: net.ErrClosed}
			}
			return dial(ctx, network, address)
		}
		c := converse(t, &Stateless{link: newLink(s, nil)})
		if got := c.ask(enveloped(1, "prompts/get", `"name":"größe",`)); !strings.Contains(got, `"id":1,"error"`) || dials != 2 {
			t.Errorf("after %d tries: %s", dials, got)
		}
	})
}

// What is not a message is not sent.
func TestSendChecksMessages(t *testing.T) {
	for name, server := range map[string]mux.Server{
		"stateful":  newStateful(&Server{}, nil),
		"stateless": &Stateless{link: newLink(&Server{}, nil)},
	} {
		if err := server.Send(t.Context(), session.Message{Bytes: []byte(`{"jsonrpc"`)}); err == nil {
			t.Errorf("S-04: %s: sent", name)
		}
	}
}

// A server that does not read has its time; then the message was not sent, and nothing
// is left of it.
func TestServerDoesNotRead(t *testing.T) {
	stuck := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) }) // of the test's own time
	for name, dial := range map[string]func(*testing.T) *conversation{
		"legacy": func(t *testing.T) *conversation { return converse(t, pipeStateful(t, stuck)) },
		"modern": func(t *testing.T) *conversation { return pipeStateless(t, stuck) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := dial(t)
				large := enveloped(1, "tools/call", `"name":"t","text":"`+strings.Repeat("x", 1<<20)+`",`)
				for range 20 { // more than may be in flight
					began := time.Now()
					err := c.server.Send(t.Context(), session.Message{Bytes: []byte(large)})
					if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != hang.Guard {
						t.Fatalf("send: %v after %v", err, took)
					}
					synctest.Wait()
				}
				time.Sleep(2 * time.Hour) // until the server is done
				if len(c.answers) != 0 {
					t.Errorf("answered %s", <-c.answers)
				}
			})
		})
	}
}
