package sidecar

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/test/hang"
)

// secretList is a list that has one tool for alice, and one that she must not see.
const secretList = `{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"secret","inputSchema":{"type":"object"}}]}`

// scripted is a server of both eras that speaks Streamable HTTP, and remembers what it gets.
type scripted struct {
	// odd answers requests that have the header X-Odd in its way, which is the value of the header.
	odd map[string]func(w http.ResponseWriter, r *http.Request, id string)
	// sessionsOnly makes it one of the revisions before 2026-07-28, and stateless the opposite.
	sessionsOnly, stateless bool

	mu   sync.Mutex
	gets []received
}

type received struct {
	method, query, body string
	header              http.Header
}

// take returns what clients have sent since it was called last.
func (s *scripted) take() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.gets
	s.gets = nil
	return got
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.gets = append(s.gets, received{r.Method, r.URL.RawQuery, string(body), r.Header.Clone()})
	s.mu.Unlock()
	id := "null"
	var method string
	if e, err := rpc.Scan(body); err == nil && e.Kind == rpc.Request {
		id, method = string(e.ID.Of(body)), string(e.Method)
	}
	odd := s.odd[r.Header.Get("X-Odd")]
	switch {
	case odd != nil && method != "initialize":
		odd(w, r, id)
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	default:
		s.answer(w, method, id)
	}
}

func (s *scripted) answer(w http.ResponseWriter, method, id string) {
	const complete = `{"resultType":"complete","ttlMs":0,"cacheScope":"private",`
	switch {
	case method == "initialize" && !s.stateless:
		agreeToInitialize(w, nil, id)
	case method == "server/discover" && !s.sessionsOnly:
		reply(w, id, complete+`"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}`)
	case method == "ping":
		reply(w, id, `{}`)
	case method == "tools/list":
		reply(w, id, complete+secretList[1:])
	case method == "tools/call":
		reply(w, id, `{"resultType":"complete","content":[]}`)
	case method == "":
		w.WriteHeader(http.StatusAccepted)
	default:
		replyError(w, http.StatusNotFound, id, -32601)
	}
}

// startScripted starts an adapter for the server.
func startScripted(t *testing.T, g *guard, server http.Handler, transport config.Transport) (url string) {
	t.Helper()
	adapter, url := startAdapter(t, g.guarded(func(c *config.Config) {
		c.Transport, c.UpstreamURL = transport, serveHTTP(t, server)
		c.Origins.Hosts = []string{"*"}
	}))
	gomega.NewWithT(t).Eventually(func() bool {
		state, _ := adapter.env.Keeper.State()
		return state.Catalog != nil
	}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
	return url
}

// scriptedSSE is a server that speaks HTTP+SSE. Once odd is set, it answers a list with these texts, in which
// ID stands for the id of the request.
type scriptedSSE struct {
	mu      sync.Mutex
	odd     []string
	streams map[string]chan string
}

func (s *scriptedSSE) set(odd ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.odd = odd
}

func (s *scriptedSSE) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		s.stream(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	w.WriteHeader(http.StatusAccepted)
	e, err := rpc.Scan(body)
	if err != nil || e.Kind != rpc.Request {
		return
	}
	id := string(e.ID.Of(body))
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.streams[r.URL.Query().Get("s")]
	if string(e.Method) == "tools/list" && s.odd != nil {
		for _, text := range s.odd {
			out <- strings.ReplaceAll(text, "ID", id)
		}
		return
	}
	result, ok := map[string]string{
		"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"s","version":"1"}}`,
		"ping":       `{}`, "tools/list": secretList,
	}[string(e.Method)]
	if !ok {
		out <- `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,"message":"no"}}`
		return
	}
	out <- `{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}`
}

func (s *scriptedSSE) stream(w http.ResponseWriter, r *http.Request) {
	out := make(chan string, 64)
	s.mu.Lock()
	if s.streams == nil {
		s.streams = map[string]chan string{}
	}
	key := strconv.Itoa(len(s.streams))
	s.streams[key] = out
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "event: endpoint\ndata: /?s="+url.QueryEscape(key)+"\n\n")
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case message := <-out:
			sayEvent(w, message)
		}
	}
}
