package mux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// fake is a server that a test plays.
type fake struct {
	mu      sync.Mutex
	sent    []string
	refuse  func(message string) error // may be nil
	receive func(session.Message)
	ended   func(error)
}

func (f *fake) Send(_ context.Context, sent session.Message) error {
	message := sent.Bytes
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		if err := f.refuse(string(message)); err != nil {
			return err
		}
	}
	f.sent = append(f.sent, string(message))
	return nil
}

func (f *fake) Serve(receive func(session.Message), ended func(error)) {
	f.receive, f.ended = receive, ended
}

func (f *fake) Close() {}

func (f *fake) refuses(refuse func(string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = refuse
}

// say has the server send a message.
func (f *fake) say(t *testing.T, text string) {
	t.Helper()
	f.receive(scan(t, text))
}

func scan(t *testing.T, text string) session.Message {
	t.Helper()
	e, err := rpc.ScanLenient([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return session.Message{Bytes: []byte(text), Envelope: e}
}

// policy is a Conn whose calls are texts.
type policy struct {
	Conn[string]
	mu       sync.Mutex
	server   *fake
	received []string
	failed   []error
}

// play runs a test with a Conn, in a bubble of its own.
func play(t *testing.T, options Options, test func(t *testing.T, p *policy)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &policy{server: &fake{}}
		options.Fail = func(err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.failed = append(p.failed, err)
			p.EndLocked(err)
		}
		p.Init(p.server, &p.mu, options)
		p.Serve(func(m session.Message) { p.received = append(p.received, string(m.Bytes)) }, options.Fail)
		test(t, p)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.EndLocked(errors.New("the test is over"))
	})
}

func (p *policy) locked(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
}

func (p *policy) wantSent(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	if !slices.Equal(p.server.sent, want) {
		t.Errorf("the server was sent\n     %q\nwant %q", p.server.sent, want)
	}
}

// Each call has a number of its own, and is found by it until it has its answer or is dropped.
func TestCallsAreFound(t *testing.T) {
	play(t, Options{}, func(t *testing.T, p *policy) {
		p.locked(func() {
			for i, name := range []string{"a", "b"} {
				number := p.NumberLocked()
				if number != uint64(i)+1 {
					t.Errorf("number %d for request %d", number, i)
				}
				p.AddLocked(number, name)
			}
		})
		progress := scan(t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}`)
		answer := scan(t, `{"jsonrpc":"2.0","id":2,"result":{}}`)
		p.locked(func() {
			if call, number, ok := p.FindLocked(progress.Bytes, progress.Envelope.ProgressToken); !ok || call != "b" || number != 2 {
				t.Errorf("progress is of %q, %d, %v", call, number, ok)
			}
			if call, _, ok := p.TakeLocked(answer); !ok || call != "b" {
				t.Errorf("the answer is to %q, %v", call, ok)
			}
			if call, _, ok := p.TakeLocked(answer); ok {
				t.Errorf("the answer is also to %q", call)
			}
			p.DropLocked(1)
			if n := p.LenLocked(); n != 0 {
				t.Errorf("%d calls are left", n)
			}
		})
	})
}

// Code behind a Conn asks for room itself. It must not find the message counted already.
func TestRoomIsGivenBack(t *testing.T) {
	play(t, Options{}, func(t *testing.T, p *policy) {
		buffer := budget.New(1<<20, 1).Account(nil)
		p.Serve(func(m session.Message) {
			if m.Charged || m.Room != nil || buffer.Held() != 10 {
				t.Errorf("the buffer holds %d bytes, the message has room: %t", buffer.Held(), m.Charged)
			}
			p.received = append(p.received, string(m.Bytes))
		}, func(error) {})
		message := scan(t, `{"jsonrpc":"2.0","method":"x"}`)
		message.Charged, message.Room = true, buffer
		buffer.Change(len(message.Bytes) + 10)
		p.server.receive(message)
		if len(p.received) != 1 {
			t.Errorf("received %q", p.received)
		}
	})
}

// What is no number of a request belongs to no call.
func TestNoNumbers(t *testing.T) {
	for _, id := range []string{`"1"`, `-1`, `1.0`, `0`, `null`, `18446744073709551616`} {
		text := []byte(id)
		if number := NumberIn(text, rpc.Span{End: len(text)}); number != 0 {
			t.Errorf("%s is number %d", id, number)
		}
	}
}

// A request of the adapter's own gets its answer, which no one else receives.
func TestAsk(t *testing.T) {
	play(t, Options{}, func(t *testing.T, p *policy) {
		var answered <-chan session.Message
		p.locked(func() { answered = p.AskLocked("tools/list", `"cursor":"c"`, time.Minute) })
		p.wantSent(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"c"}}`)
		const answer, other = `{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`, `{"jsonrpc":"2.0","id":2,"result":{}}`
		buffer := []byte(answer)
		e, err := rpc.ScanLenient(buffer)
		if err != nil {
			t.Fatal(err)
		}
		p.server.receive(session.Message{Bytes: buffer, Envelope: e})
		clear(buffer) // it belongs to the server's reader
		p.server.say(t, other)
		got, err := p.Await(t.Context(), answered)
		if err != nil || string(got.Bytes) != answer || string(got.Envelope.Result.Of(got.Bytes)) != `{"tools":[]}` {
			t.Errorf("got %q, %v", got.Bytes, err)
		}
		if !slices.Equal(p.received, []string{other}) {
			t.Errorf("received %q", p.received)
		}
		p.locked(func() {
			if heard := p.HeardLocked(); heard != 2 {
				t.Errorf("heard %d messages", heard)
			}
		})
	})
}

// A request of the adapter's own ends in time, with the connection, and with the context of the
// caller that waits.
func TestAskWithoutAnAnswer(t *testing.T) {
	errOver := errors.New("it is over")
	for name, test := range map[string]struct {
		happens func(p *policy, cancel func())
		want    error
		takes   time.Duration
	}{
		"late":                    {func(*policy, func()) {}, errNoAnswer, time.Minute},
		"the connection ends":     {func(p *policy, _ func()) { p.locked(func() { p.EndLocked(errOver) }) }, errOver, 0},
		"the caller goes away":    {func(_ *policy, cancel func()) { cancel() }, context.Canceled, 0},
		"the connection is ended": {nil, errOver, 0},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{}, func(t *testing.T, p *policy) {
				if test.happens == nil {
					p.locked(func() { p.EndLocked(errOver) })
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var answered <-chan session.Message
				p.locked(func() { answered = p.AskLocked("ping", "", time.Minute) })
				if test.happens != nil {
					test.happens(p, cancel)
				}
				start := time.Now()
				if _, err := p.Await(ctx, answered); !errors.Is(err, test.want) || time.Since(start) != test.takes {
					t.Errorf("got error %v after %s, want %v", err, time.Since(start), test.want)
				}
			})
		})
	}
}

// A Conn ends once.
func TestEnd(t *testing.T) {
	play(t, Options{}, func(t *testing.T, p *policy) {
		first, second := errors.New("first"), errors.New("second")
		p.locked(func() {
			p.AddLocked(p.NumberLocked(), "a")
			if !p.EndLocked(first) || p.EndLocked(second) {
				t.Error("it does not end once")
			}
			p.PostLocked([]byte("late"))
			if p.LenLocked() != 0 || p.QueuedLocked() != 0 {
				t.Errorf("left are %d calls and %d bytes", p.LenLocked(), p.QueuedLocked())
			}
		})
		if !errors.Is(p.Dead(), first) {
			t.Errorf("it ended by %v", p.Dead())
		}
		<-p.Over()
		p.wantSent(t)
	})
}

// Messages are written in their order, and a caller never waits for the server to read.
func TestPost(t *testing.T) {
	written := 0
	play(t, Options{Written: func() { written++ }}, func(t *testing.T, p *policy) {
		reading := make(chan struct{})
		p.server.refuses(func(string) error { <-reading; return nil })
		var want []string
		p.locked(func() {
			for i := range 5 {
				want = append(want, fmt.Sprint("message ", i))
				p.PostLocked([]byte(want[i]))
			}
			if queued := p.QueuedLocked(); queued != 5*len(want[0]) || !p.WritingLocked() {
				t.Errorf("%d bytes wait", queued)
			}
		})
		close(reading)
		p.wantSent(t, want...)
		p.locked(func() {
			if p.QueuedLocked() != 0 || p.WritingLocked() || written != 5 {
				t.Errorf("%d bytes wait after %d writes", p.QueuedLocked(), written)
			}
		})
	})
}

// A server that leaves more unread than the queue may hold is not kept. Its requests end without an
// answer.
func TestFullQueue(t *testing.T) {
	play(t, Options{QueueBytes: 10}, func(t *testing.T, p *policy) {
		reading := make(chan struct{})
		p.server.refuses(func(string) error { <-reading; return nil })
		var answered <-chan session.Message
		p.locked(func() {
			p.PostLocked([]byte("ten bytes."))
			p.PostLocked([]byte("one more, of any length"))
			if queued := p.QueuedLocked(); queued != len("ten bytes.one more, of any length") {
				t.Errorf("%d bytes wait", queued)
			}
		})
		synctest.Wait()
		p.locked(func() {
			if len(p.failed) != 0 {
				t.Errorf("failed by %v", p.failed)
			}
			answered = p.AskLocked("m", "", time.Hour)
		})
		if _, err := p.Await(t.Context(), answered); !errors.Is(err, ErrUnread) {
			t.Errorf("asked: %v", err)
		}
		close(reading)
		p.wantSent(t, "ten bytes.")
	})
}

// While the server takes no requests, other messages go first, and nothing is lost.
func TestBusy(t *testing.T) {
	errBusy := fault.Busy("busy")
	play(t, Options{}, func(t *testing.T, p *policy) {
		p.server.refuses(func(message string) error {
			if strings.Contains(message, `"method":"m"`) {
				return errBusy
			}
			return nil
		})
		p.locked(func() {
			p.PostRequestLocked(7, "m", "")
			p.CancelLocked(3, `the "client" has gone`)
		})
		const cancellation = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"the \"client\" has gone"}}`
		p.wantSent(t, cancellation)
		p.server.refuses(nil)
		time.Sleep(BusyPause)
		p.wantSent(t, cancellation, `{"jsonrpc":"2.0","id":7,"method":"m","params":{}}`)
	})
}

// A server that stops reading has some time to go on. What it was sent meanwhile is not lost.
func TestUnread(t *testing.T) {
	const stuck = time.Minute
	for name, test := range map[string]struct {
		after time.Duration
		fails bool
	}{
		"for a while": {stuck / 2, false},
		"too long":    {2 * stuck, true},
	} {
		t.Run(name, func(t *testing.T) {
			again := 0
			play(t, Options{StuckTimeout: stuck, ReadsAgain: func() { again++ }}, func(t *testing.T, p *policy) {
				p.server.refuses(func(string) error { return os.ErrDeadlineExceeded })
				p.locked(func() { p.PostLocked([]byte("message")) })
				synctest.Wait()
				p.locked(func() {
					if p.ReadsLocked() {
						t.Error("the server is said to read")
					}
				})
				time.Sleep(test.after)
				p.server.refuses(nil)
				time.Sleep(BusyPause)
				synctest.Wait()
				if test.fails {
					p.wantSent(t)
					if len(p.failed) != 1 || !errors.Is(p.failed[0], ErrUnread) {
						t.Errorf("failed by %v", p.failed)
					}
					return
				}
				p.wantSent(t, "message")
				p.locked(func() {
					if !p.ReadsLocked() || again != 1 || len(p.failed) != 0 {
						t.Errorf("reads %v, again %d times, failed by %v", p.ReadsLocked(), again, p.failed)
					}
				})
			})
		})
	}
}

// A write that fails ends the connection, by the reason of the server's end if that is known soon.
func TestWriteFails(t *testing.T) {
	errPipe, errExit := errors.New("broken pipe"), errors.New("the process exited with code 1")
	for name, known := range map[string]bool{"with a reason": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{}, func(t *testing.T, p *policy) {
				p.server.refuses(func(string) error { return errPipe })
				p.locked(func() { p.PostLocked([]byte("message")) })
				synctest.Wait()
				want := errPipe
				if known {
					want = errExit
					p.server.ended(errExit)
				}
				time.Sleep(2 * ReasonGrace)
				synctest.Wait()
				if len(p.failed) != 1 || !errors.Is(p.failed[0], want) {
					t.Errorf("failed by %v, want %v", p.failed, want)
				}
			})
		})
	}
}

// A write may have a deadline of its own.
func TestWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &patient{}
		var mu sync.Mutex
		var c Conn[int]
		failed := make(chan error, 1)
		c.Init(server, &mu, Options{WriteTimeout: time.Second, Fail: func(err error) { failed <- err }})
		mu.Lock()
		c.PostLocked([]byte("message"))
		mu.Unlock()
		start := time.Now()
		if err := <-failed; !errors.Is(err, ErrUnread) || time.Since(start) != time.Second {
			t.Errorf("failed by %v after %s", err, time.Since(start))
		}
	})
}

// patient is a server that reads nothing, and waits for as long as it may.
type patient struct{ fake }

func (*patient) Send(ctx context.Context, _ session.Message) error {
	<-ctx.Done()
	return ctx.Err()
}
