package sidecar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// The id of a session is no credential: the server sees what each message's sender shows.
func TestSSESessionShowsItsSendersToken(t *testing.T) {
	t.Parallel()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return shownServer() }, nil)
	seen := make(chan string, 64)
	_, url := adapterFor(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"tools/call"`)) {
			seen <- r.Header.Get("Authorization")
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(w, r)
	}), func(c *config.Config) { c.LegacySSE = true })
	token := &atomic.Value{}
	token.Store("Bearer one")
	clients := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Del("Authorization")
		if shows := token.Load().(string); shows != "" {
			r.Header.Set("Authorization", shows)
		}
		return http.DefaultTransport.RoundTrip(r)
	})}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).
		Connect(t.Context(), &mcp.SSEClientTransport{Endpoint: strings.TrimSuffix(url, Path) + "/sse", HTTPClient: clients}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	for _, shows := range []string{"Bearer one", "Bearer refreshed"} {
		token.Store(shows)
		_, _ = client.CallTool(t.Context(), &mcp.CallToolParams{Name: "shown"})
		if got := <-seen; got != shows {
			t.Errorf("the client sends the token %q, and the server sees %q", shows, got)
		}
	}
	token.Store("")
	if _, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "shown"}); err == nil || len(seen) > 0 {
		t.Errorf("a client that shows nothing can use the session: %v", err)
	}
}

// A server that speaks HTTP+SSE sees the token of the client that opens a session, and with each
// message the token of its sender, as a Streamable HTTP server does.
func TestSSEServerSeesTokens(t *testing.T) {
	t.Parallel()
	handler := mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return shownServer() }, nil)
	var mu sync.Mutex
	seen := map[string]string{} // by what the request is
	at := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var message struct {
			Method string
		}
		_ = json.Unmarshal(body, &message)
		mu.Lock()
		if shows := r.Header.Get("Authorization"); shows != "" { // the keeper shows nothing
			seen[strings.TrimSpace(r.Method+" "+message.Method)] = shows
		}
		mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(w, r)
	}))
	_, url := startAdapter(t, func(c *config.Config) { c.Transport, c.UpstreamURL = config.SSE, at })
	c := &client{url: url, headers: map[string]string{"Authorization": "Bearer one"}, http: &http.Client{}}
	if err := c.initialize(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.headers["Authorization"] = "Bearer refreshed"
	if _, err := c.messages(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(map[string]string{"GET": "Bearer one", "POST initialize": "Bearer one", "POST ping": "Bearer refreshed"}, seen); diff != "" {
		t.Errorf("the server sees (-want +got):\n%s", diff)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Of two messages at the same time each is shown to the server with its own token.
func TestTokensAreNotSwapped(t *testing.T) {
	t.Parallel()
	const calls = 50 // of each client
	var made, swapped atomic.Int64
	server := &httpServer{initialize: refuseInitialize, call: func(w http.ResponseWriter, r *http.Request, id string, body []byte) {
		var request struct {
			Params struct{ Arguments struct{ Who string } }
		}
		_ = json.Unmarshal(body, &request)
		made.Add(1)
		if "Bearer "+request.Params.Arguments.Who != r.Header.Get("Authorization") {
			swapped.Add(1)
		}
		reply(w, id, `{"resultType":"complete","content":[]}`)
	}}
	_, url := adapterFor(t, server, nil)
	session := &client{url: url, headers: map[string]string{"Authorization": "Bearer zero"}, http: &http.Client{}}
	if err := session.initialize(t.Context()); err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for n, who := range []string{"one", "two", "three", "four"} {
		callers.Go(func() {
			c := &client{url: url, session: session.session, headers: map[string]string{"Authorization": "Bearer " + who}, http: session.http}
			for i := range calls {
				response, err := c.post(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","arguments":{"who":%q}}}`, 1000*n+i+10, who))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		})
	}
	callers.Wait()
	if got := made.Load(); got != 4*calls {
		t.Errorf("%d calls were made, want %d", got, 4*calls)
	}
	if got := swapped.Load(); got > 0 {
		t.Errorf("%d of %d calls were made with another client's token", got, 4*calls)
	}
}

// A request belongs to the same trace on both sides of a translation. What the adapter asks on
// its own belongs to none.
func TestTracesGoThroughTranslation(t *testing.T) {
	t.Parallel()
	trace := map[string]string{
		"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate": "a=b", "Baggage": "user=anna",
	}
	for name, test := range map[string]struct {
		server *httpServer
		body   string
		opens  bool // the client has a session
	}{
		"a client with a session of a server without": {
			&httpServer{initialize: refuseInitialize}, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`, true,
		},
		"a client without a session of a server with": {
			&httpServer{initialize: agreeToInitialize, noDiscover: true},
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			seen := map[string]map[string]string{} // by method
			at := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				e, _ := rpc.ScanLenient(body)
				got := map[string]string{}
				for name := range trace {
					if value := r.Header.Get(name); value != "" {
						got[name] = value
					}
				}
				mu.Lock()
				if key := string(e.Method); len(seen[key]) == 0 {
					seen[key] = got
				}
				mu.Unlock()
				r.Body = io.NopCloser(bytes.NewReader(body))
				test.server.ServeHTTP(w, r)
			})
			test.server.call = func(w http.ResponseWriter, _ *http.Request, id string, _ []byte) {
				reply(w, id, `{"resultType":"complete","content":[]}`)
			}
			_, url := adapterFor(t, at, nil)
			c := &client{url: url, headers: map[string]string{}, http: &http.Client{}}
			if test.opens {
				if err := c.initialize(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else {
				c.headers = map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "t"}
			}
			maps.Copy(c.headers, trace)
			if got, err := c.messages(t.Context(), test.body); err != nil || !strings.Contains(strings.Join(got, ""), `"result"`) {
				t.Fatalf("got %q, %v", got, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(trace, seen["tools/call"]); diff != "" {
				t.Errorf("the server sees (-want +got):\n%s", diff)
			}
			for _, method := range []string{"initialize", "notifications/initialized", "server/discover", "ping"} {
				if len(seen[method]) > 0 {
					t.Errorf("%s belongs to a trace: %v", method, seen[method])
				}
			}
		})
	}
}
