package sidecar

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/test/hang"
)

// A request of a client without sessions is answered while a client that wants one still
// waits for the server to say whether it has some.
func TestModernClientsDoNotWaitForInitialize(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}, 8), make(chan struct{})
	server := &httpServer{initialize: func(w http.ResponseWriter, r *http.Request, id string) {
		asked <- struct{}{}
		<-answer
		agreeToInitialize(w, r, id)
	}}
	_, url := adapterFor(t, server, nil)
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	waits := make(chan error, 1)
	go func() {
		_, err := newClient(ctx, url)
		waits <- err
	}()
	<-asked
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() {
			if status, body := modernPost(ctx, t, url, "tools/list", ""); status != http.StatusOK {
				t.Errorf("status %d: %s", status, body)
			}
		})
	}
	clients.Wait()
	if len(waits) > 0 {
		t.Errorf("the client that wants a session does not wait: %v", <-waits)
	}
	close(answer)
	if err := <-waits; err != nil {
		t.Errorf("the client that wants a session: %v", err)
	}
}

// A server is not asked for sessions on behalf of clients that have none.
func TestServerIsNotAskedWithEveryRequest(t *testing.T) {
	t.Parallel()
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

// A server of both eras that fails to initialize once still gets sessions.
func TestServerThatRefusesOnceGetsSessions(t *testing.T) {
	t.Parallel()
	var asked, native atomic.Int64
	server := &httpServer{initialize: func(w http.ResponseWriter, r *http.Request, id string) {
		if asked.Add(1) == 1 {
			replyError(w, http.StatusOK, id, -32603) // such as "license server not reached yet"
			return
		}
		native.Add(1)
		agreeToInitialize(w, r, id)
	}}
	_, url := adapterFor(t, server, nil)
	if _, err := newClient(t.Context(), url); err != nil || native.Load() != 1 {
		t.Errorf("the server was asked %d times, and has opened %d sessions: %v", asked.Load(), native.Load(), err)
	}
}

// A modern client of a server without sessions is passed on as it was before.
func TestModernClientsArePassedOnAsTheyAre(t *testing.T) {
	t.Parallel()
	for name, initialize := range map[string]func(http.ResponseWriter, *http.Request, string){"both": agreeToInitialize, "modern": refuseInitialize} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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

// A server of both eras that answered nonsense while it started is passed through to all
// the same.
func TestServerOfBothErasThatStarts(t *testing.T) {
	t.Parallel()
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
	adapter, url := startAdapter(t, func(c *config.Config) { c.Transport, c.UpstreamURL = config.StreamableHTTP, at })
	gomega.NewWithT(t).Eventually(func() adapterapi.Reason { state, _ := adapter.env.Keeper.State(); return state.Reason }).WithTimeout(hang.Guard).Should(gomega.Equal(adapterapi.Broken))
	ready.Store(true)
	gomega.NewWithT(t).Eventually(func() bool { state, _ := adapter.env.Keeper.State(); return state.Catalog != nil }).WithTimeout(hang.Guard).Should(gomega.BeTrue())
	state, _ := adapter.env.Keeper.State()
	if got := state.Catalog.Server.ProtocolVersion; got != "2026-07-28" {
		t.Errorf("the keeper has revision %s", got)
	}
	native.Store(0)
	if status, body := modernPost(t.Context(), t, url, "tools/list", ""); status != http.StatusOK || native.Load() == 0 {
		t.Errorf("a modern client is translated: %d %s", status, body)
	}
}

// A server without sessions does not answer initialize at all. The adapter still answers its
// modern clients, which need no session.
func TestSilentInitializeDelaysNoModernClients(t *testing.T) {
	t.Parallel()
	without := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return shownServer() }, &mcp.StreamableHTTPOptions{Stateless: true})
	asked := make(chan struct{}, 8)
	at := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if e, err := rpc.Scan(body); err == nil && string(e.Method) == "initialize" {
			asked <- struct{}{}
			select {
			case <-r.Context().Done():
			case <-t.Context().Done():
			}
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		without.ServeHTTP(w, r)
	}))
	adapter, url := startAdapter(t, func(c *config.Config) { c.Transport, c.UpstreamURL = config.StreamableHTTP, at })
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	gomega.NewWithT(t).Eventually(func() bool {
		state, _ := adapter.env.Keeper.State()
		return state.Ready
	}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
	wanting, leave := context.WithCancel(ctx)
	defer leave()
	go func() { _, _ = newClient(wanting, url) }()
	<-asked
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(
				`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
					`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`))
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Accept", "application/json, text/event-stream")
			request.Header.Set("MCP-Protocol-Version", "2026-07-28")
			request.Header.Set("Mcp-Method", "server/discover")
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Errorf("server/discover: %s", response.Status)
			}
		})
	}
	clients.Wait()
}

// The adapter asks a server once whether it has sessions, for all clients that want one.
func TestServerIsAskedOnce(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int{"perhaps": -32602, "surely": -32022} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			all := make(chan struct{})
			release := sync.OnceFunc(func() { close(all) })
			defer release()
			server := &httpServer{initialize: func(w http.ResponseWriter, _ *http.Request, id string) {
				asked.Add(1)
				<-all
				replyError(w, http.StatusBadRequest, id, code)
			}}
			_, url := adapterFor(t, server, nil)
			var clients sync.WaitGroup
			for range 4 {
				clients.Go(func() {
					if _, err := newClient(t.Context(), url); err != nil {
						t.Errorf("a client that is translated: %v", err)
					}
				})
			}
			gomega.NewWithT(t).Eventually(asked.Load).WithTimeout(hang.Guard).Should(gomega.BeNumerically("==", 1))
			release()
			clients.Wait()
			if asked.Load() != 1 {
				t.Errorf("asked %d times for 4 clients", asked.Load())
			}
		})
	}
}
