package remote

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// The server sees with each message what its own sender shows, also where the stream of a
// call goes on in another; and with what the adapter sends itself, what was last accepted.
func TestSendersOfOneSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		seen := map[string]string{}
		c := pipeStateful(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			from := &caller.Caller{Address: "192.0.2.1"}
			if shows != "" {
				from.Authorization = []string{shows}
			}
			if err := c.Send(t.Context(), session.Message{Bytes: []byte(message), From: from}); err != nil {
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
		if err := c.Send(t.Context(), session.Message{Bytes: []byte(`{"jsonrpc":"2.0","method":"notifications/own"}`)}); err != nil {
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

// A server may answer with 404 because it knows a session of another token only. That ends
// the request, and not the session, unless the token is one that the session is known by.
func TestTokenThatTheServerDoesNotKnow(t *testing.T) {
	const foreign, own = "Bearer foreign", "Bearer own"
	jwt := caller.Caller{Principal: `jwt "issuer" "anna"`, Authorization: []string{"Bearer refreshed"}}
	for name, test := range map[string]struct {
		from *caller.Caller
		ends bool
	}{
		"another token":     {from: &caller.Caller{Principal: caller.SomeToken, Authorization: []string{foreign}}},
		"the same token":    {from: &caller.Caller{Principal: caller.SomeToken, Authorization: []string{own}}, ends: true},
		"a token that says": {from: &jwt, ends: true},
		"the adapter":       {ends: true},
	} {
		for _, message := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, `{"jsonrpc":"2.0","method":"notifications/progress"}`,
		} {
			t.Run(name+" "+message, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var forgotten atomic.Bool
					var shown atomic.Value
					c := pipeStateful(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						shown.Store(r.Header.Get("Authorization"))
						if forgotten.Load() {
							http.Error(w, "no such session", http.StatusNotFound)
							return
						}
						w.Header().Set(headerSession, "abc")
						w.Header().Set("Content-Type", typeJSON)
						_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`)
					}))
					ended := make(chan error, 1)
					c.Serve(func(session.Message) {}, func(err error) { ended <- err })
					if err := c.Send(t.Context(), session.Message{Bytes: []byte(initializeBody), From: &caller.Caller{Principal: caller.SomeToken, Authorization: []string{own}}}); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					forgotten.Store(true)
					_ = c.Send(t.Context(), session.Message{Bytes: []byte(message), From: test.from}) // which may say that the session has ended
					synctest.Wait()
					if got := len(ended) == 1; got != test.ends {
						t.Errorf("the session ends: %t, want %t", got, test.ends)
					}
					c.Close()
					synctest.Wait()
					if got := shown.Load(); !test.ends && got != own {
						t.Errorf("the session is ended with %v, want the token that the server has accepted", got)
					}
				})
			})
		}
	}
}
