package proxy

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
)

// At a server without sessions, clients that listen do not lock out those that call.
func TestListenersLeaveRoomForCalls(t *testing.T) {
	g := newGate()
	e := newEndpoint(t, newBackend(t, g), func(o *Options) { o.Single, o.Listens = 1, 1 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := e.DoContext(ctx, "GET", "")
	within(t, "GET", g.entered)
	go func() {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, strings.NewReader(ping))
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
		if got := e.Do(method, ping); got.StatusCode != http.StatusServiceUnavailable {
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
