package shared

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

func TestBounds(t *testing.T) {
	options := testOptions()
	options.Calls = 3
	options.Session.Calls = 2
	p, fakes := newFake(t, options, nil)
	one, two := connect(t, p), connect(t, p)
	f := <-fakes
	one.call(request("1", "m"))
	one.call(request("2", "m"))
	if _, err := one.Call(t.Context(), message(t, request("3", "m"))); !errors.Is(err, session.ErrTooManyCalls) {
		t.Errorf("one call too many of a session: got %v", err)
	}
	two.call(request("1", "m"))
	if _, err := two.Call(t.Context(), message(t, request("2", "m"))); !errors.Is(err, fault.ErrBusy) {
		t.Errorf("one call too many of all: got %v", err)
	}
	one.tell(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	two.call(request("2", "m")) // in the place of the cancelled one
	f.awaitHeard(5)
	one.End(errors.New("gone"))
	two.End(errors.New("gone"))
	r, _ := p.instances.Current()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.LenLocked() != 0 || len(r.views) != 0 || len(r.topics) != 0 {
		t.Errorf("left behind: %d calls, %d sessions, %d topics", r.LenLocked(), len(r.views), len(r.topics))
	}
}

// The session takes over what its inbox held, without holding it twice, and nothing is held in
// the end.
func TestInboxIsCountedOnce(t *testing.T) {
	const size = 200 << 10
	options := testOptions()
	options.Session.Memory = budget.New(64<<20, 1)
	p, fakes := newFake(t, options, func(f *fake, m session.Message) {
		if m.Envelope.ID.Present() {
			go f.say(`{"jsonrpc":"2.0","id":%s,"result":{"text":"%s"}}`, m.Envelope.ID.Of(m.Bytes), strings.Repeat("x", size))
		}
	})
	c := connect(t, p)
	<-fakes
	stream, err := c.Call(t.Context(), message(t, request("1", "m")))
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the answer", stream.Finished)
	if held := c.Account().Held(); held < size || held > size+4<<10 {
		t.Errorf("%d bytes are held for a message of %d", held, size)
	}
	stream.Take()
	stream.Detach()
	if held := c.Account().Held(); held != 0 {
		t.Errorf("%d bytes are held in the end", held)
	}
}

func TestCancelledCallsAreBounded(t *testing.T) {
	p, fakes := newFake(t, testOptions(), nil)
	c := connect(t, p)
	f := <-fakes
	const count = 3 * cancelledCalls
	for i := range count {
		c.call(request(strconv.Itoa(i), "m"))
		c.tell(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i))
	}
	f.awaitHeard(2 * count)
	r, _ := p.instances.Current()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := r.LenLocked(); got != cancelledCalls {
		t.Errorf("%d cancelled calls are remembered, want %d", got, cancelledCalls)
	}
}

// A child process that does not read delays a call until the caller's deadline. The adapter ends the
// process when it has not read for too long.
func TestProcessThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := testOptions()
		options.InputBytes = 100
		p, fakes := newFake(t, options, echo)
		one, two := connect(t, p), connect(t, p)
		f := <-fakes
		f.mu.Lock()
		f.deaf = make(chan struct{})
		f.mu.Unlock()
		waiting := one.call(request("1", strings.Repeat("m", 200)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := two.Call(ctx, message(t, request("1", "m"))); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("call that cannot be queued: got %v", err)
		}
		close(f.deaf)
		expect(t, "call that waited", strings.Join(all(t, waiting), ""), `"id":1,"result"`)
		expect(t, "next call", two.ask(request("1", "m")), `"id":1,"result"`)

		f.mu.Lock()
		f.deaf = make(chan struct{})
		f.mu.Unlock()
		start := time.Now()
		expect(t, "call at last", one.ask(request("1", "m")), `"error"`, "did not read its input for")
		if took := time.Since(start); took != options.StuckTimeout {
			t.Errorf("it took %s", took)
		}
		<-two.Done()
		connect(t, p)
	})
}

// A process that asks and asks but does not read the answers is ended.
func TestProcessThatFloods(t *testing.T) {
	options := testOptions()
	options.InputBytes = 1 << 10
	p, fakes := newFake(t, options, nil)
	c := connect(t, p)
	f := <-fakes
	f.mu.Lock()
	f.deaf = make(chan struct{})
	f.mu.Unlock()
	for i := range 1000 {
		f.say(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i)
	}
	<-c.Done()
	if _, err := c.Call(t.Context(), message(t, request("1", "m"))); !errors.Is(err, session.ErrEnded) {
		t.Errorf("call: got %v", err)
	}
}
