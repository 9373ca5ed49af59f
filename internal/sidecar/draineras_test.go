package sidecar

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
)

// While sessions at the server itself are drained, clients that are translated are refused.
func TestDrainRefusesTranslatedClients(t *testing.T) {
	t.Parallel()
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
	}).WithTimeout(hang.Guard).ShouldNot(gomega.Succeed())
	if status, body := modernPost(t.Context(), t, url, "tools/call", `"name":"t",`); status != http.StatusServiceUnavailable {
		t.Errorf("a new request while the adapter drains: %d %s", status, body)
	}
	close(leave)
	<-done
}

// Calls of clients that are translated may finish in the time of the drain, whatever else
// is waited for. Their subscriptions end with their result.
func TestDrainLetsTranslatedCallsFinish(t *testing.T) {
	t.Parallel()
	inCall := make(chan struct{}, 2)
	leave := make(chan struct{})
	server := &httpServer{noDiscover: true, initialize: agreeToInitialize, call: func(w http.ResponseWriter, r *http.Request, id string, body []byte) {
		inCall <- struct{}{}
		if bytes.Contains(body, []byte(`"for ever"`)) {
			<-r.Context().Done()
			return
		}
		<-leave
		reply(w, id, `{"content":[{"type":"text","text":"finished"}]}`)
	}}
	adapter, url := adapterFor(t, server, nil)
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
	answer := make(chan string, 1)
	go func() {
		_, body := modernPost(t.Context(), t, url, "tools/call", `"name":"t",`)
		answer <- body
	}()
	<-inCall
	listening := modernDo(t.Context(), t, url, "subscriptions/listen", `"notifications":{"toolsListChanged":true},`)
	defer func() { _ = listening.Body.Close() }()
	adapter.Drain()
	if heard, err := io.ReadAll(listening.Body); err != nil || !strings.Contains(string(heard), `"result":{"resultType":"complete"`) {
		t.Errorf("the subscription ends with %q, %v", heard, err)
	}
	gomega.NewWithT(t).Eventually(func() int {
		status, _ := modernPost(t.Context(), t, url, "tools/list", "")
		return status
	}).WithTimeout(hang.Guard).Should(gomega.Equal(http.StatusServiceUnavailable))
	close(leave)
	if body := <-answer; !strings.Contains(body, "finished") {
		t.Errorf("it was taken and cut off: %s", body)
	}
}
