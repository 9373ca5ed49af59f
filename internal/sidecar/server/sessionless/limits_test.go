package sessionless

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Every limit has an answer, and what was refused leaves no trace.
func TestLimits(t *testing.T) {
	t.Run("calls", func(t *testing.T) {
		s := newStage(t, func(o *Options) { o.Limits.Calls = 1 }, nil)
		call := s.post(enveloped("1", "some/method", ""))
		p := s.process()
		request := p.Next(t)
		s.post(enveloped("2", "some/method", "")).wantError(errCalls.Error())
		subscribed, _ := s.open(p, "3") // they have a limit of their own
		p.Answer(request, `"result":{}`)
		call.want()
		await(t, "room", func() bool { return len(s.server.open()) == 2 }) // the subscription, and that at the process
		call = s.post(enveloped("1", "some/method", ""))
		p.Answer(p.Next(t), `"result":{}`)
		call.want()
		subscribed.leave()
	})
	t.Run("subscriptions", func(t *testing.T) {
		s := newStage(t, func(o *Options) { o.Limits.Listens = 1 }, nil)
		subscribed, _ := s.open(nil, "1")
		p := s.process()
		s.post(enveloped("2", methodListen, listen)).wantError(errListens.Error())
		subscribed.leave()
		p.Next(t) // the cancellation
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
		await(t, "the first to wait", func() bool { return len(s.server.open()) == 1 })
		s.post(enveloped("2", "some/method", "")).wantError(errUnread.Error())
		close(stuck)
		p.Answer(p.Next(t), `"result":{}`)
		one.want()
		for range 3 { // what it has read counts no more
			call := s.post(enveloped("3", "some/method", ""))
			p.Answer(p.Next(t), `"result":{}`)
			call.want()
		}
	})
}

// open are the calls of the process.
func (s *Server) open() map[*Call]struct{} {
	running, err := s.first(context.Background())
	if err != nil {
		return nil
	}
	running.mu.Lock()
	defer running.mu.Unlock()
	open := map[*Call]struct{}{}
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

// newScripted is a process that a test plays.
func newScripted(limits Limits) (*process, *script) {
	p := newScript(nil)
	return newProcess(p, nil, &shared{metrics: &Metrics{}, continuations: &continuations{}, hub: newHub(), options: Options{Limits: limits}}, func(*process, error) {}), p
}

// A client that does not read is given up when too much waits for it, and the process
// is told when the client has been. Others notice nothing.
func TestSlowClients(t *testing.T) {
	limits := testLimits()
	limits.BacklogBytes, limits.TotalBytes = 1000, 3000
	progress := func(r *process, c *Call, size int) {
		text := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"x":"%s"}}`, c.number, strings.Repeat("x", size))
		r.receive(scanned(text))
	}
	drained := func(c *Call) (messages int, last string) {
		for {
			next, ok := c.Next()
			if !ok {
				return messages, last
			}
			messages, last = messages+1, string(next.Message)
		}
	}
	begin := func(r *process) *Call {
		c, err := r.ask(t.Context(), nil, "some/method", `"_meta":{"progressToken":1}`)
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
		<-p.Sent
		<-p.Sent
		slow.Release()
		if got := <-p.Sent; string(got.Envelope.Method) != "notifications/cancelled" {
			t.Errorf("the process is sent %s", got.Bytes)
		}
		if r.buffered != 0 || r.metrics.SlowClients.Value() != 1 {
			t.Errorf("%d bytes are counted, and %d slow clients", r.buffered, r.metrics.SlowClients.Value())
		}
	})
	t.Run("all together", func(t *testing.T) {
		r, _ := newScripted(limits)
		calls := []*Call{begin(r), begin(r), begin(r), begin(r)}
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

// A message of a client counts until the client has read it. One for a session that is
// translated counts there as soon as it is taken.
func TestBufferedBytes(t *testing.T) {
	for name, test := range map[string]struct {
		internal bool
		taken    int // bytes that still count
	}{"client": {false, len(logMessage)}, "translated session": {true, 0}} {
		t.Run(name, func(t *testing.T) {
			p, _ := newScripted(testLimits())
			defer p.fail(errDied)
			request := scanned(wantingLogs("1"))
			request.From = &caller.Caller{}
			c, err := p.call(t.Context(), request, test.internal)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Release()
			p.receive(scanned(logMessage))
			for step, want := range []int{len(logMessage), test.taken, 0} {
				if step > 0 {
					c.Next()
				}
				if p.buffered != want {
					t.Errorf("%d bytes count after %d steps, want %d", p.buffered, step, want)
				}
			}
		})
	}
}
