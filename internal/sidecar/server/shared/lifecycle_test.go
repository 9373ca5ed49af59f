package shared

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

var errNoStart = errors.New("no such command")

// R12: many who come at once wait for one start, and one who goes stops nothing.
func TestR12OneStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := testOptions()
		var starts atomic.Int32
		goOn := make(chan struct{})
		options.Acquire = func(context.Context) (mux.Server, error) {
			starts.Add(1)
			<-goOn
			return &fake{t: t, result: plainResult}, nil
		}
		p := New(options)
		defer p.Close()
		hasty, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := p.Open(hasty)
			left <- err
		}()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if _, err := p.Open(t.Context()); err != nil {
					t.Errorf("open: %v", err)
				}
			})
		}
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("one who left: got %v", err)
		}
		close(goOn)
		all.Wait()
		if n := starts.Load(); n != 1 {
			t.Errorf("%d starts, want 1", n)
		}
	})
}

// A command that does not start or does not stay is tried ever more slowly.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := testOptions()
		starts, fail := 0, true
		var last *fake
		options.Acquire = func(context.Context) (mux.Server, error) {
			starts++
			if fail {
				return nil, errNoStart
			}
			last = &fake{t: t, result: plainResult}
			return last, nil
		}
		p := New(options)
		defer p.Close()
		try := func(what string, wantStarts int) {
			t.Helper()
			if _, err := p.Open(t.Context()); !errors.Is(err, errNoStart) || starts != wantStarts {
				t.Errorf("%s: %d starts, want %d: %v", what, starts, wantStarts, err)
			}
		}
		try("first", 1)
		try("again at once", 2)
		try("too soon", 2)
		time.Sleep(mux.OnDemand.First)
		try("after the first back-off", 3)
		time.Sleep(mux.OnDemand.First)
		try("too soon again", 3)
		time.Sleep(mux.OnDemand.First)
		try("after the second back-off", 4)
		for range 10 {
			time.Sleep(mux.OnDemand.Last)
			starts = 0
			try("after the last back-off", 1)
		}
		fail = false
		time.Sleep(mux.OnDemand.Last)
		c := connect(t, p)
		last.die(errNoStart)
		<-c.Done()
		starts = 0
		try("a process that did not stay", 0)
		time.Sleep(mux.OnDemand.Last)
		connect(t, p)
		time.Sleep(mux.Lasting)
		last.die(errNoStart)
		connect(t, p) // its end is no reason to wait
	})
}

// R06: a client that opens a session gets the reason at once why the child process did not start.
func TestR06EndWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := testOptions()
		f := &silent{fake: fake{t: t}}
		options.Acquire = func(context.Context) (mux.Server, error) { return f, nil }
		p := New(options)
		defer p.Close()
		failed := make(chan error)
		go func() {
			_, err := p.Open(t.Context())
			failed <- err
		}()
		synctest.Wait()
		f.die(errNoStart)
		if err := <-failed; !errors.Is(err, errNoStart) {
			t.Errorf("got %v", err)
		}
		start := time.Now()
		if _, err := p.Open(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != options.StartTimeout {
			t.Errorf("no answer to initialize: got %v after %s", err, time.Since(start))
		}
		if !f.closed {
			t.Error("the process was left alone")
		}
		if n := p.Metrics().StartFailures.Value(); n != 2 {
			t.Errorf("counted %d failures, want 2", n)
		}
	})
}

// A start that Close ends has not failed.
func TestCloseWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := testOptions()
		f := &silent{fake: fake{t: t}}
		options.Acquire = func(context.Context) (mux.Server, error) { return f, nil }
		p := New(options)
		failed := make(chan error)
		go func() {
			_, err := p.Open(t.Context())
			failed <- err
		}()
		synctest.Wait()
		p.Close()
		if err := <-failed; !errors.Is(err, fault.ErrDraining) {
			t.Errorf("got %v", err)
		}
		if !f.closed {
			t.Error("the process was left alone")
		}
		if n := p.Metrics().StartFailures.Value(); n != 0 {
			t.Errorf("counted %d failures", n)
		}
	})
}

// silent does not answer initialize.
type silent struct{ fake }

func (s *silent) Send(context.Context, session.Message) error { return nil }

// R10, T-27: the end of the child process ends every session, after the messages that it sent before.
// The next session has a fresh process.
func TestR10ProcessEnds(t *testing.T) {
	p, fakes := newFake(t, testOptions(), nil)
	one, two := connect(t, p), connect(t, p)
	f := <-fakes
	answered, lost, other := one.call(request("1", "m")), one.call(request("2", "m")), two.call(request("2", "m"))
	sent := message(t, f.awaitHeard(3)[0])
	f.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, sent.Envelope.ID.Of(sent.Bytes))
	f.die(errors.New("it fell over"))
	expect(t, "answered call", strings.Join(all(t, answered), ""), `"id":1,"result":{}`)
	for _, stream := range []*session.Stream{lost, other} {
		expect(t, "T-27 call in flight", strings.Join(all(t, stream), ""), `"id":2,"error":{"code":-32603,"message":"it fell over"`)
	}
	<-one.Done()
	<-two.Done()
	if !f.closed {
		t.Error("the process was not closed")
	}
	connect(t, p)
	if fresh := <-fakes; fresh == f {
		t.Error("the dead process is used again")
	}
}

// The adapter ends a session whose client does not read. Other sessions go on.
func TestSlowSession(t *testing.T) {
	options := testOptions()
	options.Session.TotalBytes = 64 << 10
	options.BacklogBytes = 64 << 10
	p, _ := newFake(t, options, func(f *fake, m session.Message) {
		if string(m.Envelope.Method) == "big" {
			f.say(`{"jsonrpc":"2.0","id":%s,"result":"%s"}`, m.Envelope.ID.Of(m.Bytes), strings.Repeat("x", 32<<10))
			return
		}
		echo(f, m)
	})
	slow, brisk := connect(t, p), connect(t, p)
	var streams []*session.Stream
	for i := range 100 {
		stream, err := slow.Call(t.Context(), message(t, request(strconv.Itoa(i), "big")))
		if errors.Is(err, session.ErrEnded) {
			break
		}
		if err != nil {
			t.Fatalf("call: %v", err)
		}
		streams = append(streams, stream)
		expect(t, "brisk session", brisk.ask(request("1", "m")), `"id":1,"result":{}`)
	}
	<-slow.Done()
	if n := p.Metrics().SlowSessions.Value(); n != 1 {
		t.Errorf("counted %d slow sessions, want 1", n)
	}
	// Two answers fill the backlog, if the session has not taken any of them over
	// by then; it can hold two more.
	if len(streams) < 2 || len(streams) > 10 {
		t.Errorf("ended after %d answers, want two to about four", len(streams))
	}
	got := strings.Join(all(t, streams[len(streams)-1]), "")
	expect(t, "last call", got, `"error":{"code":-32603,"message":"`+ErrSlow.Error())
	expect(t, "brisk session afterwards", brisk.ask(request("1", "m")), `"id":1,"result":{}`)
}

// A slow session ends soon after its child process.
func TestSlowSessionOfADeadProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := testOptions()
		options.Session.TotalBytes = 10
		p, fakes := newFake(t, options, echo)
		c := connect(t, p)
		f := <-fakes
		for i := range 5 {
			c.call(request(strconv.Itoa(i), "m"))
		}
		synctest.Wait()
		f.die(errors.New("it fell over"))
		start := time.Now()
		<-c.Done()
		if took := time.Since(start); took != lastDelivery {
			t.Errorf("the session ended after %s, want %s", took, lastDelivery)
		}
	})
}

// The goroutine that delivers to a session ends with the session, and not only with the process:
// synctest fails if a goroutine is left.
func TestDeliveryEndsWithSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newFake(t, testOptions(), echo)
		connect(t, p).End(errors.New("the client left"))
	})
}
