package upstream

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// At a server without sessions, clients that listen do not lock out those that call.
func TestListenersLeaveRoomForCalls(t *testing.T) {
	g := newGate()
	e := newEndpoint(t, newBackend(t, g), func(o *Options) { o.Single, o.Listens = 1, 1 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := e.doContext(ctx, "GET", "")
	within(t, "GET", g.entered)
	go func() {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, strings.NewReader(ping))
		if err != nil {
			t.Error(err)
			return
		}
		request.Header.Set("Content-Type", typeJSON)
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	within(t, "POST", g.entered)
	for _, method := range []string{"GET", "POST"} {
		if got := e.do(method, ping); got.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s, one too many: %s", method, got.Status)
		}
	}
	if got := e.proxy.InFlight(); got != 2 {
		t.Errorf("%d requests are in flight", got)
	}
	cancel()
	_ = stream.Body.Close()
	gomega.NewWithT(t).Eventually(e.proxy.InFlight).WithTimeout(hang.Guard).Should(gomega.BeZero())
}

// A server that takes messages and does not say so holds up a number of them only.
func TestUnacceptedMessagesAreBounded(t *testing.T) {
	accept := make(chan struct{})
	server := newScripted("event: endpoint\ndata: /m\n\n")
	server.post = func(w http.ResponseWriter, r *http.Request, _ string) {
		select {
		case <-accept:
		case <-r.Context().Done():
		}
		w.WriteHeader(http.StatusAccepted)
	}
	sse, _, _ := newSSEEndpoint(t, newBackend(t, server), func(o *SSEOptions) { o.Limits.Calls = 1 })
	opened, err := sse.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer opened.End(session.ErrClient)
	tell := func() error {
		text := []byte(`{"jsonrpc":"2.0","method":"n"}`)
		envelope, err := rpc.Scan(text)
		if err != nil {
			t.Fatal(err)
		}
		return opened.Tell(t.Context(), session.Message{Bytes: text, Envelope: envelope})
	}
	for range postsPerCall {
		if err := tell(); err != nil {
			t.Fatal(err)
		}
	}
	if err := tell(); !errors.Is(err, session.ErrTooManyCalls) {
		t.Errorf("one too many: %v", err)
	}
	close(accept)
	gomega.NewWithT(t).Eventually(tell).WithTimeout(hang.Guard).Should(gomega.Succeed())
}
