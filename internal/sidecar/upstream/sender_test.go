package upstream

import (
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// The server sees with each message what its own sender shows, also where the stream of a
// call goes on in another; and with what nobody sent, what was shown last.
func TestSendersOfOneSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		seen := map[string]string{}
		c := pipeConnection(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			what := r.Method + r.Header.Get("Last-Event-ID")
			if envelope, err := rpc.Scan(body); err == nil {
				what = string(envelope.Method)
			}
			mu.Lock()
			seen[what] = r.Header.Get("Authorization")
			mu.Unlock()
			switch what {
			case "initialize":
				w.Header().Set(headerSession, "abc")
				w.Header().Set("Content-Type", typeJSON)
				_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`)
			case "tools/call":
				w.Header().Set("Content-Type", typeEvents)
				_, _ = io.WriteString(w, "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n\n")
			case "GET1":
				w.Header().Set("Content-Type", typeEvents)
				_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n")
			case "GET":
				w.WriteHeader(http.StatusMethodNotAllowed)
			default:
				w.WriteHeader(http.StatusAccepted)
			}
		}))
		answers := make(chan struct{}, 2)
		c.Serve(func(m session.Message) {
			if m.Envelope.Kind == rpc.Response {
				answers <- struct{}{}
			}
		}, func(error) {})
		send := func(shows, message string) {
			header := http.Header{}
			if shows != "" {
				header.Set("Authorization", shows)
			}
			if err := c.Send(WithHeader(t.Context(), header), []byte(message)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		send("one", initializeBody)
		<-answers
		send("two", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		send("three", `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
		send("", `{"jsonrpc":"2.0","method":"notifications/progress"}`)
		send("five", `{"jsonrpc":"2.0","id":"a","result":{}}`)
		<-answers
		if err := c.Send(t.Context(), []byte(`{"jsonrpc":"2.0","method":"notifications/own"}`)); err != nil {
			t.Error(err)
		}
		c.Close()
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		want := map[string]string{
			"initialize": "one", "notifications/initialized": "two", "GET": "two", "tools/call": "three", "GET1": "three",
			"notifications/progress": "", "": "five", "notifications/own": "five", "DELETE": "five",
		}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("the server sees (-want +got):\n%s", diff)
		}
	})
}
