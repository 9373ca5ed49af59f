package stateless

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless/sessionlesstest"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// recorder is an answer that notes what it is given.
type recorder struct {
	mu     sync.Mutex
	header http.Header
	status int
	body   strings.Builder
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.body.Write(b)
}

func (r *recorder) Flush()                           {}
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

func (r *recorder) written() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.body.String()
}

// M-20, M-07, L-07: how long an answer is waited for, in each stage.
func TestTimes(t *testing.T) {
	const timeout = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the call took longer than 1m0s"}}`
	for name, test := range map[string]struct {
		method, params string
		steps          []time.Duration
		want           []string // what was written by then
		call           time.Duration
	}{
		"a call": {"some/method", "", []time.Duration{9 * time.Second, 2 * time.Second, 15 * time.Second, 35 * time.Second},
			[]string{"", ": keep-alive\n\n", ": keep-alive\n\n", ": keep-alive\n\n: keep-alive\n\nevent: message\ndata: " + timeout + "\n\n"}, time.Minute},
		"a short call":   {"some/method", "", []time.Duration{4 * time.Second, 2 * time.Second}, []string{"", strings.Replace(timeout, "1m0s", "5s", 1)}, 5 * time.Second},
		"a subscription": {subscription.MethodListen, `"notifications":{"unknown":true},`, []time.Duration{11 * time.Second, time.Hour}, []string{": keep-alive\n\n", strings.Repeat(": keep-alive\n\n", 240)}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := sessionlesstest.New(nil)
				server := sessionless.New(sessionless.Options{Limits: testLimits(), Era: sessionless.Modern, Acquire: func(context.Context) (mux.Server, error) { return p, nil }})
				e := New(Options{Server: server, CommitAfter: 10 * time.Second, KeepAlive: 15 * time.Second, CallTimeout: test.call, WriteTimeout: time.Hour})
				message := scanned(enveloped("1", test.method, test.params))
				ctx, leave := context.WithCancel(t.Context())
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				request.Header = headers(message)
				w := &recorder{header: http.Header{}}
				go e.Serve(w, &edge.Request{Request: request, Messages: []session.Message{message}})
				written := ""
				for i, step := range test.steps {
					time.Sleep(step)
					synctest.Wait()
					text := w.written()
					if got := strings.TrimPrefix(text, written); got != test.want[i] {
						t.Errorf("after %s more there is %q, want %q", step, got, test.want[i])
					}
					written = text
				}
				leave()
				synctest.Wait()
				<-p.Sent
				if cancelled := <-p.Sent; string(cancelled.Envelope.Method) != "notifications/cancelled" {
					t.Errorf("L-07: the process is sent %s", cancelled.Bytes)
				}
				server.Close()
			})
		})
	}
}
