package sessionless

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless/sessionlesstest"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// An idle process ends, and a client that comes later gets another one.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits()
		limits.IdleTimeout = mux.Lasting / 2 // so that an end by a mistake would count
		started := make(chan *script, 2)
		e := New(Options{Limits: limits, Era: Modern, Acquire: func(context.Context) (mux.Server, error) {
			p := newScript(nil)
			started <- p
			return p, nil
		}})
		defer e.Close()
		begin := func() (*Call, *script, session.Message) {
			call, err := e.Call(t.Context(), scanned(enveloped("1", "some/method", "")))
			if err != nil {
				t.Fatal(err)
			}
			p := <-started
			return call, p, p.Next(t)
		}
		call, first, request := begin()
		time.Sleep(2 * limits.IdleTimeout)
		first.Answer(request, `"result":{}`)
		if message, _ := awaitMessage(t, call); !strings.Contains(string(message), "result") {
			t.Errorf("a call that takes long is answered %s", message)
		}
		call.Release()
		time.Sleep(limits.IdleTimeout - time.Second)
		synctest.Wait()
		select {
		case <-first.Closed:
			t.Error("the process ended too soon")
		default:
		}
		time.Sleep(2 * time.Second)
		<-first.Closed
		for range 3 { // it does not count as a failure, so that the next start is at once
			call, next, _ := begin()
			call.Release()
			<-next.Sent // its cancellation
			time.Sleep(limits.IdleTimeout)
			<-next.Closed
		}
	})
}

// When no client can make a new request, a process ends that does nothing, at once or with its last answer. One stays that
// has what a client may come back for, or that sessions use.
func TestRefuseEndsIdleProcesses(t *testing.T) {
	for name, test := range map[string]struct {
		session bool
		result  string
		stays   bool
	}{
		"of clients without sessions": {false, `{}`, false},
		"of sessions":                 {true, `{}`, true},
		"with a state":                {false, `{"resultType":"input_required","requestState":"s","inputRequests":{}}`, true},
		"with a task":                 {false, `{"resultType":"task","task":{"taskId":"t1","status":"working","ttl":3600000,"pollInterval":1000}}`, true},
	} {
		for _, during := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, in a call: %t", name, during), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newScript(nil)
					e := New(Options{Limits: testLimits(), Era: Modern, Acquire: func(context.Context) (mux.Server, error) { return p, nil }})
					defer e.Close()
					request := scanned(strings.Replace(enveloped("1", "tools/call", `"name":"x",`), `clientCapabilities":{}`, `clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, 1))
					first, err := e.primary.Get(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					request.From = &caller.Caller{}
					call, err := first.call(t.Context(), request, test.session)
					if err != nil {
						t.Fatal(err)
					}
					asked := p.Next(t)
					if during {
						e.Refuse()
						time.Sleep(time.Second)
					}
					p.Answer(asked, `"result":`+test.result)
					awaitMessage(t, call)
					call.Release()
					if !during {
						e.Refuse()
					}
					synctest.Wait()
					select {
					case <-p.Closed:
						if test.stays {
							t.Error("the process has ended")
						}
					default:
						if !test.stays {
							t.Error("the process is left")
						}
					}
				})
			})
		}
	}
}

// A process with a task that runs is not idle.
func TestIdleWithTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newScript(nil)
		e := New(Options{Limits: testLimits(), Era: Modern, Acquire: func(context.Context) (mux.Server, error) { return p, nil }})
		defer e.Close()
		call, err := e.Call(t.Context(), scanned(strings.Replace(enveloped("1", "tools/call", `"name":"x",`), `clientCapabilities":{}`, `clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, 1)))
		if err != nil {
			t.Fatal(err)
		}
		p.Answer(p.Next(t), `"result":{"resultType":"task","task":{"taskId":"t1","status":"working","ttl":3600000,"pollInterval":1000}}`)
		awaitMessage(t, call)
		call.Release()
		time.Sleep(10 * e.options.Limits.IdleTimeout)
		synctest.Wait()
		select {
		case <-p.Closed:
			t.Error("the process was ended with a task that is working")
		default:
		}
	})
}

// A process that does not read is replaced at some time.
func TestProcessThatDoesNotRead(t *testing.T) {
	var started atomic.Int32
	s := newStage(t, func(o *Options) {
		acquire := o.Acquire
		o.Acquire = func(ctx context.Context) (mux.Server, error) {
			started.Add(1)
			server, err := acquire(ctx)
			return unreading{server}, err
		}
		o.Era, o.Limits.StuckTimeout = Modern, time.Millisecond
	}, nil)
	await(t, "another process", func() bool {
		s.post(enveloped("1", "some/method", "")).wantError()
		return started.Load() > 1
	})
}

type unreading struct{ mux.Server }

func (unreading) Send(context.Context, session.Message) error { return os.ErrDeadlineExceeded }

// A process that hangs is replaced at some time.
func TestProcessThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits()
		limits.StuckTimeout = 30 * time.Second
		started := make(chan *script, 2)
		s := New(Options{Limits: limits, Era: Modern, Acquire: func(context.Context) (mux.Server, error) {
			p := newScript(nil)
			started <- p
			return p, nil
		}})
		defer s.Close()
		ask := func(id string) <-chan string {
			answered := make(chan string, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				answered <- ask(ctx, s, id)
			}()
			return answered
		}
		wantLonger := func(answered <-chan string) {
			if got := <-answered; !strings.Contains(got, context.DeadlineExceeded.Error()) {
				t.Errorf("got %s", got)
			}
		}
		busy := ask("1")
		first := <-started
		first.Next(t)
		first.Emit(`{"jsonrpc":"2.0","method":"notifications/other"}`) // it is alive
		wantLonger(busy)
		if got := first.Next(t); string(got.Envelope.Method) != "notifications/cancelled" {
			t.Errorf("the process is sent %s", got.Bytes)
		}
		wantLonger(ask("2"))
		synctest.Wait()
		select {
		case <-first.Closed: // it has said nothing since then
		default:
			t.Error("the process that hangs was not ended")
		}
		call := ask("3")
		next := <-started
		next.Answer(next.Next(t), `"result":{}`)
		if got := <-call; !strings.Contains(got, `"result":{}`) {
			t.Errorf("got %s", got)
		}
	})
}

// A process that is asked which era it is of is not idle, however long it takes.
func TestIdleWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits()
		limits.IdleTimeout, limits.StartTimeout = time.Second, time.Minute
		p := newScript(nil)
		e := New(Options{Limits: limits, Acquire: func(context.Context) (mux.Server, error) { return p, nil }})
		defer e.Close()
		made := make(chan error, 1)
		go func() {
			call, err := e.Call(t.Context(), scanned(enveloped("1", "some/method", "")))
			if err == nil {
				call.Release()
			}
			made <- err
		}()
		asked := p.Next(t)
		time.Sleep(5 * limits.IdleTimeout)
		p.Answer(asked, sessionlesstest.ModernDiscovery)
		if err := <-made; err != nil {
			t.Error(err)
		}
	})
}
