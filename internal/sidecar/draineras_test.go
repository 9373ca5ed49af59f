package sidecar

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/rpc"
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
		if bytes.Contains(body, []byte(`"hang"`)) {
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
		if response, err := native.post(t.Context(), `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{"x":"hang"}}}`); err == nil {
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

// A call of a translated session takes several requests if the server asks the client for
// input. A drain waits for all of them.
func TestDrainLetsTranslatedSessionsFinish(t *testing.T) {
	t.Parallel()
	server := &httpServer{initialize: refuseInitialize, call: func(w http.ResponseWriter, _ *http.Request, id string, body []byte) {
		if bytes.Contains(body, []byte(`"inputResponses"`)) {
			reply(w, id, `{"resultType":"complete","content":[{"type":"text","text":"finished"}]}`)
			return
		}
		reply(w, id, `{"resultType":"input_required","requestState":"s","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"well?","requestedSchema":{"type":"object"}}}}}`)
	}}
	adapter, url := adapterFor(t, server, nil)
	c, err := newClient(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	response, err := c.post(ctx, call(7, "t", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var last string
	err = eachMessage(response.Body, func(message string) {
		if last = message; !strings.Contains(message, `"elicitation/create"`) {
			return
		}
		adapter.Drain()
		gomega.NewWithT(t).Consistently(adapter.Drained()).WithTimeout(time.Second).ShouldNot(gomega.BeClosed())
		envelope, err := rpc.Scan([]byte(message))
		if err != nil {
			t.Error(err)
			return
		}
		answer, err := c.post(ctx, `{"jsonrpc":"2.0","id":`+string(envelope.ID.Of([]byte(message)))+`,"result":{"action":"accept","content":{}}}`)
		if err != nil {
			t.Error(err)
			return
		}
		_ = answer.Body.Close()
	})
	if err != nil || !strings.Contains(last, "finished") {
		t.Errorf("the call ended with %s, %v", last, err)
	}
}
