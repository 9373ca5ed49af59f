package stateless

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Every limit has an answer, and what was refused leaves no trace.
func TestLimits(t *testing.T) {
	t.Run("calls", func(t *testing.T) {
		s := newStage(t, func(o *Options) { o.Limits.Calls = 1 }, nil)
		call := s.post(enveloped("1", "some/method", ""))
		p := s.process()
		request := p.next(t)
		s.post(enveloped("2", "some/method", "")).want(503, fault.ErrBusy.Error(), `"id":2`)
		subscribed, _ := s.open(p, "3") // they have a limit of their own
		p.answer(request, `"result":{}`)
		call.want(200)
		await(t, "room", func() bool { return len(s.endpoint.open()) == 2 }) // the subscription, and that at the process
		call = s.post(enveloped("1", "some/method", ""))
		p.answer(p.next(t), `"result":{}`)
		call.want(200)
		subscribed.leave()
	})
	t.Run("subscriptions", func(t *testing.T) {
		s := newStage(t, func(o *Options) { o.Limits.Listens = 1 }, nil)
		subscribed, _ := s.open(nil, "1")
		p := s.process()
		response := s.post(enveloped("2", methodListen, listen))
		response.want(503, errListens.Error())
		if response.answer.Header.Get("Retry-After") == "" {
			t.Error("it is not said when to come back")
		}
		subscribed.leave()
		p.next(t) // the cancellation
		s.open(p, "3")
	})
	t.Run("a server that does not read", func(t *testing.T) {
		stuck := make(chan struct{})
		s := newStage(t, func(o *Options) {
			o.Limits.SendingBytes, o.Era = 100, Modern
			acquire := o.Acquire
			o.Acquire = func(ctx context.Context) (mux.Server, error) {
				server, err := acquire(ctx)
				return &stuckServer{Server: server, until: stuck}, err
			}
		}, nil)
		one := s.post(enveloped("1", "some/method", ""))
		p := s.process()
		await(t, "the first to wait", func() bool { return len(s.endpoint.open()) == 1 })
		s.post(enveloped("2", "some/method", "")).want(503, errUnread.Error())
		close(stuck)
		p.answer(p.next(t), `"result":{}`)
		one.want(200)
		for range 3 { // what it has read counts no more
			call := s.post(enveloped("3", "some/method", ""))
			p.answer(p.next(t), `"result":{}`)
			call.want(200)
		}
		if got := s.endpoint.Metrics().Refused.Value(); got != 1 {
			t.Errorf("%d refusals are counted", got)
		}
	})
}

// open are the calls of the process.
func (e *Endpoint) open() map[*call]struct{} {
	running, err := e.process.running(context.Background())
	if err != nil {
		return nil
	}
	running.mu.Lock()
	defer running.mu.Unlock()
	open := map[*call]struct{}{}
	for c := range running.open {
		open[c] = struct{}{}
	}
	return open
}

type stuckServer struct {
	mux.Server
	until <-chan struct{}
}

func (s *stuckServer) Send(ctx context.Context, sent session.Message) error {
	<-s.until
	return s.Server.Send(ctx, sent)
}

// newScripted is a run over a process that a test plays.
func newScripted(limits Limits) (*run, *script) {
	p := &script{sent: make(chan session.Message, 1024), closed: make(chan struct{})}
	return newRun(p, nil, &Options{Limits: limits}, &Metrics{}, func(*run, error) {}), p
}

// A client that does not read is given up when too much waits for it, and the process
// is told when the client has been. Others notice nothing.
func TestSlowClients(t *testing.T) {
	limits := testLimits()
	limits.BacklogBytes, limits.TotalBytes = 1000, 3000
	request := scanned(t, strings.Replace(enveloped("1", "some/method", ""), `"_meta":{`, `"_meta":{"progressToken":1,`, 1))
	progress := func(r *run, c *call, size int) {
		text := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"x":"%s"}}`, c.number, strings.Repeat("x", size))
		r.receive(scanned(t, text))
	}
	drained := func(c *call) (messages int, last string) {
		for {
			next, ok := c.take()
			if !ok {
				return messages, last
			}
			messages, last = messages+1, string(next.message)
		}
	}
	begin := func(r *run) *call {
		c, err := r.begin(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Run("one", func(t *testing.T) {
		r, p := newScripted(limits)
		slow, other := begin(r), begin(r)
		for range 6 { // more than one may have, and less than all
			progress(r, slow, 200)
		}
		progress(r, other, 200)
		if n, last := drained(slow); n != 1 || !strings.Contains(last, errClientSlow.Error()) {
			t.Errorf("the slow one has %d messages, the last %s", n, last)
		}
		if n, _ := drained(other); n != 1 {
			t.Errorf("the other one has %d messages", n)
		}
		<-p.sent
		<-p.sent
		slow.release()
		if got := <-p.sent; string(got.Envelope.Method) != "notifications/cancelled" {
			t.Errorf("the process is sent %s", got.Bytes)
		}
		if r.waiting != 0 || r.metrics.SlowClients.Value() != 1 {
			t.Errorf("%d bytes are counted, and %d slow clients", r.waiting, r.metrics.SlowClients.Value())
		}
	})
	t.Run("all together", func(t *testing.T) {
		r, _ := newScripted(limits)
		calls := []*call{begin(r), begin(r), begin(r), begin(r)}
		for i, c := range calls {
			progress(r, c, 800+10*i) // a little less than each may have
		}
		for i, c := range calls {
			n, last := drained(c)
			if slow := strings.Contains(last, errClientSlow.Error()); n != 1 || slow != (i == 3) {
				t.Errorf("call %d has %d messages, the last %s", i, n, last)
			}
		}
	})
	t.Run("one large message is no reason", func(t *testing.T) {
		r, _ := newScripted(limits)
		c := begin(r)
		progress(r, c, 5000)
		if _, last := drained(c); strings.Contains(last, errClientSlow.Error()) {
			t.Error("it was given up")
		}
	})
}

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
	limits := testLimits()
	limits.CommitAfter, limits.KeepAlive, limits.CallTimeout = 10*time.Second, 15*time.Second, time.Minute
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
		"a subscription": {methodListen, `"notifications":{"unknown":true},`, []time.Duration{11 * time.Second, time.Hour}, []string{": keep-alive\n\n", strings.Repeat(": keep-alive\n\n", 240)}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits := limits
				limits.CallTimeout = test.call
				p := &script{sent: make(chan session.Message, 16), closed: make(chan struct{})}
				e := New(Options{Limits: limits, Era: Modern, Acquire: func(context.Context) (mux.Server, error) { return p, nil }})
				message := scanned(t, enveloped("1", test.method, test.params))
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
				<-p.sent
				if cancelled := <-p.sent; string(cancelled.Envelope.Method) != "notifications/cancelled" {
					t.Errorf("L-07: the process is sent %s", cancelled.Bytes)
				}
				e.Close()
			})
		})
	}
}
