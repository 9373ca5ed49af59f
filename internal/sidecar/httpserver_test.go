package sidecar

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/test/hang"
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
	e, err := rpc.Scan(body)
	if err != nil || e.Kind != rpc.Request {
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
func adapterFor(t *testing.T, server http.Handler, change func(*config.Config)) (*Adapter, string) {
	t.Helper()
	at := serveHTTP(t, server)
	adapter, url := startAdapter(t, func(c *config.Config) {
		c.Transport, c.UpstreamURL = config.StreamableHTTP, at
		if change != nil {
			change(c)
		}
	})
	gomega.NewWithT(t).Eventually(func() bool {
		state, _ := adapter.env.Keeper.State()
		return state.Catalog != nil
	}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
	return adapter, url
}

// modernDo makes a request of the stateless revision. The caller closes the body.
func modernDo(ctx context.Context, t *testing.T, url, method, params string) *http.Response {
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
		return &http.Response{Body: io.NopCloser(strings.NewReader(err.Error()))}
	}
	return response
}

// modernPost is modernDo for an answer that ends.
func modernPost(ctx context.Context, t *testing.T, url, method, params string) (status int, body string) {
	t.Helper()
	response := modernDo(ctx, t, url, method, params)
	defer func() { _ = response.Body.Close() }()
	read, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(read)
}
