package sidecar

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/test/hang"
)

// A client gets one notification of a change, however many calls are in flight.
func TestNewsAreToldOnce(t *testing.T) {
	t.Parallel()
	leave := make(chan struct{})
	var calls atomic.Int64
	server := &httpServer{initialize: refuseInitialize, call: func(w http.ResponseWriter, r *http.Request, id string, _ []byte) {
		calls.Add(1)
		select {
		case <-leave:
		case <-r.Context().Done():
		}
		reply(w, id, `{"resultType":"complete","content":[]}`)
	}}
	_, url := adapterFor(t, server, nil)
	t.Cleanup(func() { close(leave) })
	const keepers = 1
	gomega.NewWithT(t).Eventually(server.listening).WithTimeout(hang.Guard).Should(gomega.Equal(keepers))
	client, hears := sdkClient(t, url, "2025-11-25")
	gomega.NewWithT(t).Eventually(server.listening).WithTimeout(hang.Guard).Should(gomega.BeNumerically(">", keepers))
	for range sessionless.BusyCalls + 2 {
		go func() { _, _ = client.CallTool(t.Context(), &mcp.CallToolParams{Name: "t"}) }()
	}
	gomega.NewWithT(t).Eventually(calls.Load).WithTimeout(hang.Guard).Should(gomega.BeNumerically("==", sessionless.BusyCalls+2))
	for range 3 { // the second telling of one would come before that of the last
		server.change()
		expectChange(t, hears, "tools")
	}
	if _, err := client.ListTools(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if got := server.listening(); got != keepers+1 || len(hears) > 0 {
		t.Errorf("%d streams are listened to, want %d; told of a change %d times too often", got, keepers+1, len(hears))
	}
}

// A log message that came on the stream of one session's call is not another's.
func TestLogsStayInTheirSession(t *testing.T) {
	t.Parallel()
	inCall := make(chan struct{}, 1)
	leave := make(chan struct{})
	server := &httpServer{initialize: refuseInitialize, call: func(w http.ResponseWriter, _ *http.Request, id string, body []byte) {
		secret := "his secret"
		if bytes.Contains(body, []byte(`/logLevel"`)) { // the call of the client with the log level
			inCall <- struct{}{}
			<-leave
			secret = "her own"
		}
		sayEvent(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"`+secret+`"}}`)
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
	close(leave)
	select {
	case text := <-logs: // what she was told before comes first
		if text != "her own" {
			t.Errorf("she is told %q", text)
		}
	case <-time.After(hang.Guard):
		t.Error("she is not told what is hers")
	}
}

// Two calls that both want log messages have them, each its own: the stream says whose.
func TestLogsOfTwoCalls(t *testing.T) {
	t.Parallel()
	var both sync.WaitGroup
	both.Add(2)
	told := make(chan struct{}) // closed when both were
	defer close(told)
	server := &httpServer{initialize: refuseInitialize, call: func(w http.ResponseWriter, _ *http.Request, id string, _ []byte) {
		both.Done()
		both.Wait()
		sayEvent(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`)
		<-told
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
		case <-time.After(hang.Guard):
			t.Fatalf("log message %d is lost", i+1)
		}
	}
}

// Sessions that are translated leave nothing behind. It counts goroutines of the whole
// process, so no test may run beside it.
func TestTranslatedSessionsLeaveNothing(t *testing.T) {
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
	before, seen := 0, 0
	gomega.NewWithT(t).Eventually(func() int { // come to rest
		last := before
		if before = runtime.NumGoroutine(); before != last {
			seen = 0
		}
		seen++
		return seen
	}).WithPolling(20 * time.Millisecond).WithTimeout(hang.Guard).Should(gomega.Equal(20))
	round()
	gomega.NewWithT(t).Eventually(runtime.NumGoroutine).WithTimeout(hang.Guard).Should(gomega.BeNumerically("<=", before+2))
}
