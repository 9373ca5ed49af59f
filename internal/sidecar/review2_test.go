package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/wire"
)

// httpServer is a server that speaks Streamable HTTP, as the test wants it to.
type httpServer struct {
	initialize func(w http.ResponseWriter, r *http.Request, id string)
	call       func(w http.ResponseWriter, r *http.Request, id string, body []byte)
	noDiscover bool

	mu      sync.Mutex
	listens map[string]http.ResponseWriter // by id, of this server's numbering
	next    int
}

func reply(w http.ResponseWriter, id, result string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":`+result+`}`)
}

func replyError(w http.ResponseWriter, status int, id string, code int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no"}}`, id, code)
}

func sayEvent(w http.ResponseWriter, message string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: "+message+"\n\n")
	_ = http.NewResponseController(w).Flush()
}

func (s *httpServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	e, err := wire.Scan(body)
	if err != nil || e.Kind != wire.Request {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	id := string(e.ID.Of(body))
	switch method := string(e.Method); {
	case method == "server/discover" && !s.noDiscover:
		reply(w, id, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"logging":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"ttlMs":0,"cacheScope":"private"}`)
	case method == "initialize":
		s.initialize(w, r, id)
	case method == "ping":
		reply(w, id, `{}`)
	case method == "tools/list":
		reply(w, id, `{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"t","inputSchema":{"type":"object"}}]}`)
	case method == "tools/call":
		s.call(w, r, id, body)
	case method == "subscriptions/listen":
		s.listen(w, r, id)
	default:
		replyError(w, http.StatusNotFound, id, -32601)
	}
}

func (s *httpServer) listen(w http.ResponseWriter, r *http.Request, id string) {
	sayEvent(w, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":`+id+`},"notifications":{"toolsListChanged":true}}}`)
	s.mu.Lock()
	if s.listens == nil {
		s.listens = map[string]http.ResponseWriter{}
	}
	s.next++
	key := fmt.Sprint(s.next, " ", id)
	s.listens[key] = w
	s.mu.Unlock()
	<-r.Context().Done()
	s.mu.Lock()
	delete(s.listens, key)
	s.mu.Unlock()
}

func (s *httpServer) listening() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.listens)
}

func (s *httpServer) change() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, w := range s.listens {
		_, id, _ := strings.Cut(key, " ")
		sayEvent(w, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":`+id+`}}}`)
	}
}

func refuseInitialize(w http.ResponseWriter, _ *http.Request, id string) {
	replyError(w, http.StatusNotFound, id, -32601)
}

func agreeToInitialize(w http.ResponseWriter, _ *http.Request, id string) {
	w.Header().Set("Mcp-Session-Id", "s1")
	reply(w, id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`)
}

// adapterFor waits until the keeper knows the server.
func adapterFor(t *testing.T, server http.Handler, change func(*Config)) (*Adapter, string) {
	t.Helper()
	at := serveHTTP(t, server)
	adapter, url := startAdapter(t, func(c *Config) {
		c.Transport, c.UpstreamURL = StreamableHTTP, at
		if change != nil {
			change(c)
		}
	})
	gomega.NewWithT(t).Eventually(func() bool {
		state, _ := adapter.keeper.State()
		return state.Catalog != nil
	}).WithTimeout(10 * time.Second).Should(gomega.BeTrue())
	return adapter, url
}

// modernPost makes a request of the stateless revision.
func modernPost(ctx context.Context, t *testing.T, url, method, params string) (status int, body string) {
	t.Helper()
	text := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("Mcp-Protocol-Version", "2026-07-28")
	request.Header.Set("Mcp-Method", method)
	if method == "tools/call" {
		request.Header.Set("Mcp-Name", "t")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	read, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(read)
}

// A native request of a modern client waits for the answer to an initialize that it did
// not ask for, and behind everybody else who waits for that.
func TestReviewModernClientsDoNotWaitForInitialize(t *testing.T) {
	server := &httpServer{initialize: func(_ http.ResponseWriter, r *http.Request, _ string) { <-r.Context().Done() }}
	_, url := adapterFor(t, server, nil)
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() {
			began := time.Now()
			status, body := modernPost(t.Context(), t, url, "tools/list", "")
			if took := time.Since(began); status != http.StatusOK || took > 2*time.Second {
				t.Errorf("status %d after %v: %s", status, took, body)
			}
		})
	}
	clients.Wait()
}

// A modern server that does not say whether it has sessions is asked with every request.
func TestReviewServerIsNotAskedWithEveryRequest(t *testing.T) {
	var asked atomic.Int64
	server := &httpServer{initialize: func(w http.ResponseWriter, _ *http.Request, id string) {
		asked.Add(1)
		replyError(w, http.StatusInternalServerError, id, -32603)
	}}
	_, url := adapterFor(t, server, nil)
	for range 20 {
		if status, body := modernPost(t.Context(), t, url, "tools/list", ""); status != http.StatusOK {
			t.Fatalf("status %d: %s", status, body)
		}
	}
	if got := asked.Load(); got > 2 {
		t.Errorf("asked %d times to initialize for 20 requests of clients that have no sessions", got)
	}
}

// A server of both eras that could not initialize once is one without sessions for ever.
func TestReviewOneRefusalIsNotForEver(t *testing.T) {
	var asked, native atomic.Int64
	server := &httpServer{initialize: func(w http.ResponseWriter, r *http.Request, id string) {
		if asked.Add(1) == 1 {
			replyError(w, http.StatusOK, id, -32603) // such as "licence server not reached yet"
			return
		}
		native.Add(1)
		agreeToInitialize(w, r, id)
	}}
	_, url := adapterFor(t, server, nil)
	for range 2 {
		if _, err := newClient(t.Context(), url); err != nil {
			t.Logf("client: %v", err)
		}
		time.Sleep(time.Second) // whatever it is that makes it ask again, there was time for it
	}
	if native.Load() == 0 {
		t.Error("the server was never asked again, and its clients are translated for ever")
	}
}

// While sessions at the server itself are drained, others are not.
func TestReviewDrainRefusesTranslatedClients(t *testing.T) {
	inCall := make(chan struct{})
	leave := make(chan struct{})
	var calls atomic.Int64
	server := &httpServer{noDiscover: true, initialize: agreeToInitialize, call: func(w http.ResponseWriter, r *http.Request, id string, _ []byte) {
		if calls.Add(1) == 1 {
			close(inCall)
			select {
			case <-leave:
			case <-r.Context().Done():
			}
		}
		reply(w, id, `{"content":[]}`)
	}}
	adapter, url := adapterFor(t, server, nil)
	native, err := newClient(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := modernPost(t.Context(), t, url, "tools/list", ""); status != http.StatusOK {
		t.Fatalf("before the drain: %d %s", status, body)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		response, err := native.post(t.Context(), `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`)
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	}()
	<-inCall
	adapter.Drain()
	gomega.NewWithT(t).Eventually(func() error {
		_, err := newClient(t.Context(), url) // a native one is refused
		return err
	}).WithTimeout(2 * time.Second).ShouldNot(gomega.Succeed())
	if status, body := modernPost(t.Context(), t, url, "tools/call", `"name":"t",`); status != http.StatusServiceUnavailable {
		t.Errorf("a new request while the adapter drains: %d %s", status, body)
	}
	close(leave)
	<-done
}

// One change is told once, however many calls are in flight.
func TestReviewNewsAreToldOnce(t *testing.T) {
	leave := make(chan struct{})
	server := &httpServer{initialize: refuseInitialize, call: func(w http.ResponseWriter, r *http.Request, id string, _ []byte) {
		select {
		case <-leave:
		case <-r.Context().Done():
		}
		reply(w, id, `{"resultType":"complete","content":[]}`)
	}}
	_, url := adapterFor(t, server, nil)
	t.Cleanup(func() { close(leave) })
	keepers := server.listening()
	client, hears := sdkClient(t, url, "2025-11-25")
	gomega.NewWithT(t).Eventually(server.listening).WithTimeout(5 * time.Second).Should(gomega.BeNumerically(">", keepers))
	for range statelessCrowd + 2 {
		go func() { _, _ = client.CallTool(t.Context(), &mcp.CallToolParams{Name: "t"}) }()
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(time.Second)
	t.Logf("%d subscriptions at the server", server.listening())
	server.change()
	expectChange(t, hears, "tools")
	select {
	case <-hears:
		t.Error("told twice of one change")
	case <-time.After(2 * time.Second):
	}
}

// A log message that came on the stream of one session's call is not another's.
func TestReviewLogsStayInTheirSession(t *testing.T) {
	inCall := make(chan struct{}, 1)
	leave := make(chan struct{})
	server := &httpServer{initialize: refuseInitialize, call: func(w http.ResponseWriter, r *http.Request, id string, body []byte) {
		if bytes.Contains(body, []byte(`/logLevel"`)) { // hers, who wants to know
			inCall <- struct{}{}
			<-leave
			reply(w, id, `{"resultType":"complete","content":[]}`)
			return
		}
		sayEvent(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"his secret"}}`)
		sayEvent(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"resultType":"complete","content":[]}}`)
	}}
	_, url := adapterFor(t, server, nil)
	logs := make(chan string, 4)
	hers, err := mcp.NewClient(&mcp.Implementation{Name: "hers", Version: "1"}, &mcp.ClientOptions{
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) { logs <- fmt.Sprint(r.Params.Data) },
	}).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hers.Close() })
	if err := hers.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"}); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = hers.CallTool(t.Context(), &mcp.CallToolParams{Name: "t"}) }()
	<-inCall
	his, _ := sdkClient(t, url, "2025-11-25")
	if _, err := his.CallTool(t.Context(), &mcp.CallToolParams{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	select {
	case text := <-logs:
		t.Errorf("she is told %q", text)
	case <-time.After(time.Second):
	}
	close(leave)
}

// Two calls that both want log messages have them, each its own: the stream says whose.
func TestReviewLogsOfTwoCalls(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	server := &httpServer{initialize: refuseInitialize, call: func(w http.ResponseWriter, _ *http.Request, id string, _ []byte) {
		both.Done()
		both.Wait()
		sayEvent(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`)
		time.Sleep(100 * time.Millisecond)
		sayEvent(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"resultType":"complete","content":[]}}`)
	}}
	_, url := adapterFor(t, server, nil)
	logs := make(chan string, 4)
	for range 2 {
		c, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
			LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) { logs <- fmt.Sprint(r.Params.Data) },
		}).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"}); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "t"}) }()
	}
	for i := range 2 {
		select {
		case <-logs:
		case <-time.After(3 * time.Second):
			t.Fatalf("log message %d is lost", i+1)
		}
	}
}

// The id of a session is no credential: the server sees what each message's sender shows.
func TestReviewSSESessionShowsItsSendersToken(t *testing.T) {
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return shownServer() }, nil)
	seen := make(chan string, 64)
	_, url := adapterFor(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"tools/call"`)) {
			seen <- r.Header.Get("Authorization")
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(w, r)
	}), func(c *Config) { c.LegacySSE = true })
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
	for _, shows := range []string{"Bearer one", "Bearer refreshed", ""} {
		token.Store(shows)
		_, _ = client.CallTool(t.Context(), &mcp.CallToolParams{Name: "shown"})
		if got := <-seen; got != shows {
			t.Errorf("for a message of somebody who shows %q the server sees %q", shows, got)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Of two messages at the same time each is shown to the server with its own token.
func TestReviewTokensAreNotSwapped(t *testing.T) {
	var swapped atomic.Int64
	server := &httpServer{initialize: refuseInitialize, call: func(w http.ResponseWriter, r *http.Request, id string, body []byte) {
		var request struct {
			Params struct{ Arguments struct{ Who string } }
		}
		_ = json.Unmarshal(body, &request)
		if "Bearer "+request.Params.Arguments.Who != r.Header.Get("Authorization") {
			swapped.Add(1)
		}
		reply(w, id, `{"resultType":"complete","content":[]}`)
	}}
	_, url := adapterFor(t, server, nil)
	session, err := newClient(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for n, who := range []string{"one", "two", "three", "four"} {
		callers.Go(func() {
			c := &client{url: url, session: session.session, headers: map[string]string{"Authorization": "Bearer " + who}, http: session.http}
			for i := range 300 {
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
	if got := swapped.Load(); got > 0 {
		t.Errorf("%d of 1200 calls were made with somebody else's token", got)
	}
}

// A client that comes while a slow server without sessions starts is not sent to it.
func TestReviewSlowModernServer(t *testing.T) {
	_, url := startAdapterOn(t, newListener(t), nil, "sh", "-c", "sleep 5; exec "+eraFilter+" modern "+bothServer)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := &client{url: url, http: http.DefaultClient}
	response, err := c.post(ctx, initializeMessage)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	if !bytes.Contains(body, []byte(`"serverInfo"`)) {
		t.Errorf("a client that came at the start: %s %s", response.Status, body)
	}
}

// A modern client of a server without sessions is passed on as it was before.
func TestReviewModernClientsArePassedOnAsTheyAre(t *testing.T) {
	for name, initialize := range map[string]func(http.ResponseWriter, *http.Request, string){"both": agreeToInitialize, "modern": refuseInitialize} {
		t.Run(name, func(t *testing.T) {
			_, url := adapterFor(t, &httpServer{initialize: initialize}, nil)
			text := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"} {
				request.Header.Set(name, value)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			if body, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
				t.Errorf("%s %s", response.Status, body)
			}
		})
	}
}

// onlyWith lets nobody in without credentials.
func onlyWith(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Servers that want credentials of everybody have clients of both eras, too.
func TestReviewServersThatWantCredentials(t *testing.T) {
	clients := &http.Client{Transport: showing("Bearer one")}
	for name, test := range map[string]struct {
		server   *httpServer
		revision string
	}{
		"modern server": {&httpServer{initialize: refuseInitialize}, "2025-11-25"},
		"legacy server": {&httpServer{initialize: agreeToInitialize, noDiscover: true}, "2026-07-28"},
	} {
		t.Run(name, func(t *testing.T) {
			at := serveHTTP(t, onlyWith(test.server))
			adapter, url := startAdapter(t, func(c *Config) { c.Transport, c.UpstreamURL = StreamableHTTP, at })
			gomega.NewWithT(t).Eventually(func() bool { state, _ := adapter.keeper.State(); return state.Ready }).WithTimeout(10 * time.Second).Should(gomega.BeTrue())
			session, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).
				Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: clients, DisableStandaloneSSE: true}, &mcp.ClientSessionOptions{ProtocolVersion: test.revision})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = session.Close() }()
			if got := session.InitializeResult().ProtocolVersion; got != test.revision {
				t.Errorf("the client has revision %s, want %s", got, test.revision)
			}
		})
	}
}

// A subscription is made in the name of whoever wants it.
func TestReviewSubscriptionsShowTheToken(t *testing.T) {
	server := &httpServer{initialize: refuseInitialize}
	shown := make(chan string, 16)
	_, url := adapterFor(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "subscriptions/listen" {
			shown <- r.Header.Get("Authorization")
		}
		server.ServeHTTP(w, r)
	}), nil)
	<-shown // the keeper's
	session, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).
		Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: showing("Bearer one")}}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	select {
	case got := <-shown:
		if got != "Bearer one" {
			t.Errorf("it is asked for by somebody who shows %q", got)
		}
	case <-time.After(5 * time.Second):
		t.Error("no subscription")
	}
}

// Sessions that are translated leave nothing behind.
func TestReviewTranslatedSessionsLeaveNothing(t *testing.T) {
	inCall := make(chan struct{}, 100)
	server := &httpServer{initialize: refuseInitialize, call: func(_ http.ResponseWriter, r *http.Request, _ string, _ []byte) {
		inCall <- struct{}{}
		<-r.Context().Done()
	}}
	_, url := adapterFor(t, server, nil)
	round := func() {
		for range 15 {
			c, err := newClient(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			if response, err := c.post(t.Context(), `{"jsonrpc":"2.0","method":"notifications/initialized"}`); err == nil {
				_ = response.Body.Close()
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				if response, err := c.post(ctx, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"t"}}`); err == nil {
					_ = response.Body.Close()
				}
			}()
			<-inCall
			response, err := c.do(t.Context(), http.MethodDelete, "")
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			cancel()
			c.http.CloseIdleConnections()
		}
	}
	round()
	time.Sleep(5 * time.Second)
	before := runtime.NumGoroutine()
	round()
	gomega.NewWithT(t).Eventually(runtime.NumGoroutine).WithTimeout(10 * time.Second).Should(gomega.BeNumerically("<=", before+2))
}

// A process of both eras that could not initialize once, for a reason of its own, has
// sessions all the same.
func TestReviewOneRefusalOfAProcessIsNotForEver(t *testing.T) {
	first := t.TempDir() + "/first"
	script := `if mkdir ` + first + ` 2>/dev/null; then read l; id=$(printf %s "$l" | sed 's/.*"id":\([0-9]*\).*/\1/');` +
		`printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"licence server not reached"}}\n' "$id"; cat >/dev/null; else exec ` + bothServer + `; fi`
	adapter, _ := startAdapterOn(t, newListener(t), func(c *Config) { c.Warm = 0 }, "sh", "-c", script)
	gomega.NewWithT(t).Eventually(func() bool { state, _ := adapter.keeper.State(); return state.Ready }).WithTimeout(20 * time.Second).Should(gomega.BeTrue())
	gomega.NewWithT(t).Eventually(func() bool { state, _ := adapter.keeper.State(); return state.Stateless }).WithTimeout(10 * time.Second).Should(gomega.BeFalse())
}

// Calls of clients that are translated may finish in the time of the drain.
func TestReviewDrainLetsTranslatedCallsFinish(t *testing.T) {
	inCall := make(chan struct{}, 2)
	server := &httpServer{noDiscover: true, initialize: agreeToInitialize, call: func(w http.ResponseWriter, r *http.Request, id string, body []byte) {
		inCall <- struct{}{}
		if bytes.Contains(body, []byte(`"for ever"`)) {
			<-r.Context().Done()
			return
		}
		time.Sleep(1500 * time.Millisecond)
		reply(w, id, `{"content":[{"type":"text","text":"finished"}]}`)
	}}
	adapter, url := adapterFor(t, server, func(c *Config) { c.DrainTimeout = 3 * time.Second })
	native, err := newClient(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if response, err := native.post(t.Context(), `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{"x":"for ever"}}}`); err == nil {
			_ = response.Body.Close()
		}
	}()
	<-inCall
	adapter.Drain()
	time.Sleep(2 * time.Second) // nothing refuses the next one, see above
	status, body := modernPost(t.Context(), t, url, "tools/call", `"name":"t",`)
	if status != http.StatusServiceUnavailable && !strings.Contains(body, "finished") {
		t.Errorf("it was taken and cut off: %d %s", status, body)
	}
}

// A server of both eras that answered nonsense while it started is passed through to all
// the same.
func TestReviewServerOfBothErasThatStarts(t *testing.T) {
	var ready atomic.Bool
	var native atomic.Int64
	server := &httpServer{initialize: agreeToInitialize}
	at := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !ready.Load():
			http.NotFound(w, r) // its routes are not there yet
			return
		case r.Header.Get("Mcp-Method") == "tools/list":
			native.Add(1)
		}
		server.ServeHTTP(w, r)
	}))
	adapter, url := startAdapter(t, func(c *Config) { c.Transport, c.UpstreamURL = StreamableHTTP, at })
	gomega.NewWithT(t).Eventually(func() keeper.Reason { state, _ := adapter.keeper.State(); return state.Reason }).WithTimeout(10 * time.Second).Should(gomega.Equal(keeper.Broken))
	ready.Store(true)
	gomega.NewWithT(t).Eventually(func() bool { state, _ := adapter.keeper.State(); return state.Catalog != nil }).WithTimeout(20 * time.Second).Should(gomega.BeTrue())
	time.Sleep(5 * time.Second)
	state, _ := adapter.keeper.State()
	if got := state.Catalog.Server.ProtocolVersion; got != "2026-07-28" {
		t.Errorf("the keeper has revision %s", got)
	}
	native.Store(0)
	if status, body := modernPost(t.Context(), t, url, "tools/list", ""); status != http.StatusOK || native.Load() == 0 {
		t.Errorf("a modern client is translated: %d %s", status, body)
	}
}
