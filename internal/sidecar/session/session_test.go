package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// recorder is a server that notes what it is sent.
type recorder struct {
	mu     sync.Mutex
	got    []string
	err    error
	after  int // messages before err
	closed bool
	forget bool // it notes nothing
}

func (r *recorder) Send(_ context.Context, sent Message) error {
	message := sent.Bytes
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil && len(r.got) >= r.after {
		return r.err
	}
	if !r.forget {
		r.got = append(r.got, string(message))
	}
	return nil
}

func (r *recorder) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

func (r *recorder) messages() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.got...)
}

var testLimits = Limits{
	Calls: 4, Streams: 2, Detached: 16, Requests: 8,
	ReplayBytes: 16 << 10, PendingBytes: 8 * (32 + eventOverhead), TotalBytes: 1 << 20,
	CallTimeout: time.Minute, CancelGrace: time.Second, DeliveryTimeout: 5 * time.Second, RequestTimeout: time.Minute,
}

type harness struct {
	*Session
	t      *testing.T
	server *recorder
}

func newHarness(t *testing.T, limits Limits) *harness {
	server := &recorder{}
	return &harness{New(server, limits, &Metrics{}), t, server}
}

func (h *harness) message(text string) Message {
	h.t.Helper()
	envelope, err := rpc.Scan([]byte(text))
	if err != nil {
		h.t.Fatalf("scan %s: %v", text, err)
	}
	return Message{Bytes: []byte(text), Envelope: envelope}
}

func (h *harness) call(id int, meta string) *Stream {
	h.t.Helper()
	stream, err := h.Call(h.t.Context(), h.message(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{%s}}`, id, meta)))
	if err != nil {
		h.t.Fatalf("call %d: %v", id, err)
	}
	return stream
}

func (h *harness) open() *Stream {
	h.t.Helper()
	stream, err := h.Open()
	if err != nil {
		h.t.Fatalf("open: %v", err)
	}
	return stream
}

func (h *harness) say(text string) { h.Deliver(h.message(text)) }

func (h *harness) answer(id int) { h.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id)) }

func (h *harness) tell(text string) {
	h.t.Helper()
	if err := h.Tell(h.t.Context(), h.message(text)); err != nil {
		h.t.Fatalf("tell: %v", err)
	}
}

// taken is everything that waits on a stream, shortened to what tells it apart.
func taken(stream *Stream) (got []string) {
	for {
		event, ok, end := stream.Take()
		if !ok {
			if end {
				got = append(got, "end")
			}
			return got
		}
		if event.Message == nil {
			got = append(got, event.Failed())
			continue
		}
		text := string(event.Message)
		text = strings.TrimPrefix(text, `{"jsonrpc":"2.0",`)
		got = append(got, strings.TrimSuffix(text, "}"))
	}
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const (
	note     = `{"jsonrpc":"2.0","method":"n"}`
	noteText = `"method":"n"`
	ask      = `{"jsonrpc":"2.0","id":"s1","method":"elicitation/create"}`
	askText  = `"id":"s1","method":"elicitation/create"`
)

func TestAnswersGoToTheirCalls(t *testing.T) {
	h := newHarness(t, testLimits)
	one, two := h.call(1, ""), h.call(2, "")
	h.answer(2)
	h.answer(1)
	expect(t, "first call", taken(one), `"id":1,"result":{}`, "end")
	expect(t, "second call", taken(two), `"id":2,"result":{}`, "end")
	if len(h.streams) != 0 || len(h.calls) != 0 || h.waiting != 0 {
		t.Errorf("left behind: %d streams, %d calls, %d bytes", len(h.streams), len(h.calls), h.waiting)
	}
}

func TestProgressFollowsItsToken(t *testing.T) {
	h := newHarness(t, testLimits)
	general, one, two := h.open(), h.call(1, `"_meta":{"progressToken":"a"}`), h.call(2, `"_meta":{"progressToken":7}`)
	h.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7}}`)
	h.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"a"}}`)
	h.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"7"}}`)
	expect(t, "first call", taken(one), `"method":"notifications/progress","params":{"progressToken":"a"}`)
	expect(t, "second call", taken(two), `"method":"notifications/progress","params":{"progressToken":7}`)
	expect(t, "general stream", taken(general)) // no client gave the last token, which is a string
	if got := h.metrics.UnmatchedProgress.Value(); got != 1 {
		t.Errorf("U-05 unmatched progress: got %d, want 1", got)
	}
}

// A message that belongs to no call goes to the only call in flight, else to a general stream,
// else to the newest call, else to the stream that opens next.
func TestRoutingOfTheRest(t *testing.T) {
	t.Run("R28 the only call", func(t *testing.T) {
		h := newHarness(t, testLimits)
		general, one := h.open(), h.call(1, "")
		h.say(note)
		expect(t, "call", taken(one), noteText)
		expect(t, "general stream", taken(general))
	})
	t.Run("T-12 one of two general streams", func(t *testing.T) {
		h := newHarness(t, testLimits)
		first, second := h.open(), h.open()
		h.say(note)
		expect(t, "older stream", taken(first))
		expect(t, "newer stream", taken(second), noteText)
	})
	t.Run("several calls, no general stream", func(t *testing.T) {
		h := newHarness(t, testLimits)
		one, two := h.call(1, ""), h.call(2, "")
		h.say(ask)
		expect(t, "older call", taken(one))
		expect(t, "newer call", taken(two), askText)
	})
	t.Run("R27 no stream yet", func(t *testing.T) {
		h := newHarness(t, testLimits)
		h.say(note)
		h.say(ask)
		expect(t, "stream that opens later", taken(h.open()), noteText, askText)
	})
	t.Run("a cancelled call attracts nothing", func(t *testing.T) {
		h := newHarness(t, testLimits)
		one, two := h.call(1, ""), h.call(2, "")
		h.tell(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		h.say(note)
		expect(t, "live call", taken(one), noteText)
		expect(t, "cancelled call", taken(two), FailedCancelled, "end")
	})
	t.Run("U-01 ping is answered here", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, testLimits)
			one := h.call(1, "")
			h.say(`{"jsonrpc":"2.0","id":0,"method":"ping"}`)
			synctest.Wait()
			expect(t, "call", taken(one))
			expect(t, "server", h.server.messages()[1:], `{"jsonrpc":"2.0","id":0,"result":{}}`)
		})
	})
}

func TestAnswersToServerRequests(t *testing.T) {
	h := newHarness(t, testLimits)
	one := h.call(1, "")
	h.say(ask)
	expect(t, "call", taken(one), askText)
	h.tell(`{"jsonrpc":"2.0","id":"other","result":{}}`) // the server did not ask
	h.tell(`{"jsonrpc":"2.0","id":"s1","result":{}}`)
	h.tell(`{"jsonrpc":"2.0","id":"s1","result":{}}`) // once is enough
	expect(t, "server", h.server.messages()[1:], `{"jsonrpc":"2.0","id":"s1","result":{}}`)
	if got := h.metrics.UnmatchedAnswers.Value(); got != 2 {
		t.Errorf("unmatched answers: got %d, want 2", got)
	}
}

// a request that no client stream comes for is refused, not left hanging.
func TestServerRequestThatNoClientTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, testLimits)
		h.say(ask)
		time.Sleep(testLimits.DeliveryTimeout)
		synctest.Wait()
		got := h.server.messages()
		if len(got) != 1 || !strings.Contains(got[0], `"id":"s1","error":{"code":-32603`) {
			t.Errorf("server got %q, want an error", got)
		}
	})
}

func TestLimitsOfASession(t *testing.T) {
	h := newHarness(t, testLimits)
	h.call(1, "")
	if _, err := h.Call(t.Context(), h.message(`{"jsonrpc":"2.0","id":1,"method":"m"}`)); !errors.Is(err, ErrDuplicateID) {
		t.Errorf("T-29 same id: got %v", err)
	}
	if _, err := h.Call(t.Context(), h.message(`{"jsonrpc":"2.0","id":"1","method":"m"}`)); err != nil {
		t.Errorf("J-02 same id of another type: got %v", err)
	}
	h.call(3, "")
	h.call(4, "")
	if _, err := h.Call(t.Context(), h.message(`{"jsonrpc":"2.0","id":5,"method":"m"}`)); !errors.Is(err, ErrTooManyCalls) {
		t.Errorf("one call too many: got %v", err)
	}
}

func TestCallThatCannotBeSent(t *testing.T) {
	h := newHarness(t, testLimits)
	h.server.err = errors.New("broken pipe")
	if _, err := h.Call(t.Context(), h.message(`{"jsonrpc":"2.0","id":1,"method":"m"}`)); err == nil {
		t.Error("got no error")
	}
	if _, _, idle := h.Idle(); !idle || len(h.streams) != 0 {
		t.Errorf("the call is still there: idle %v, %d streams", idle, len(h.streams))
	}
}

// A process that dies breaks its pipe first, and the adapter learns of the death a moment later. The session is over then, so a
// client must not be told to retry. A live process that has closed its input gets no message either, but its session goes on.
func TestPipeThatBreaksBeforeTheSessionEnds(t *testing.T) {
	for name, dies := range map[string]bool{"a process that dies": true, "one that has closed its input": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, testLimits)
				h.server.err = fmt.Errorf("write: %w", syscall.EPIPE)
				if dies {
					time.AfterFunc(endsWithin/2, func() { h.End(errors.New("the process has ended")) })
				}
				want := h.server.err
				if dies {
					want = ErrEnded
				}
				if _, err := h.Call(t.Context(), h.message(`{"jsonrpc":"2.0","id":1,"method":"m"}`)); !errors.Is(err, want) {
					t.Errorf("a call got %v, want %v", err, want)
				}
				if err := h.Tell(t.Context(), h.message(`{"jsonrpc":"2.0","method":"n"}`)); !errors.Is(err, want) {
					t.Errorf("a notification got %v, want %v", err, want)
				}
				h.End(nil)
			})
		})
	}
}

// Requests of a batch that reached the server are answered by it, also if the rest did not: a
// client that is told that nothing was sent sends all of it again, and the server acts twice.
func TestBatchThatIsSentInPart(t *testing.T) {
	h := newHarness(t, testLimits)
	h.server.err, h.server.after = errors.New("broken pipe"), 1
	var batch []Message
	for id := range 3 {
		batch = append(batch, h.message(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, id)))
	}
	stream, err := h.Call(t.Context(), batch...)
	if err != nil {
		t.Fatalf("call: %v", err)
	}
	const failed = `"error":{"code":-32603,"message":"the request did not reach the server: broken pipe"}`
	expect(t, "before the answer", taken(stream), `"id":1,`+failed, `"id":2,`+failed)
	h.answer(0)
	expect(t, "after it", taken(stream), `"id":0,"result":{}`, "end")
	if _, _, idle := h.Idle(); idle {
		t.Error("the client has not read all")
	}
	stream.Detach()
	if _, _, idle := h.Idle(); !idle || len(h.streams) != 0 {
		t.Errorf("calls are left: idle %v, %d streams", idle, len(h.streams))
	}
}

func TestBatchSharesAStream(t *testing.T) {
	h := newHarness(t, testLimits)
	stream, err := h.Call(t.Context(), h.message(`{"jsonrpc":"2.0","id":1,"method":"m"}`), h.message(`{"jsonrpc":"2.0","id":2,"method":"m"}`))
	if err != nil {
		t.Fatalf("call: %v", err)
	}
	h.answer(2)
	expect(t, "after one answer", taken(stream), `"id":2,"result":{}`)
	h.answer(1)
	expect(t, "after both", taken(stream), `"id":1,"result":{}`, "end")
}

// A slow reader loses its oldest notifications, is told by a metric, and never
// loses an answer or a request.
func TestSlowReader(t *testing.T) {
	h := newHarness(t, testLimits)
	one := h.call(1, "")
	h.say(ask)
	for i := range 100 {
		h.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"n%02d"}`, i))
	}
	h.answer(1)
	got := taken(one)
	if got[0] != askText || got[len(got)-2] != `"id":1,"result":{}` || got[len(got)-3] != `"method":"n99"` {
		t.Errorf("got %q, want the request, the newest notifications and the answer", got)
	}
	if dropped := h.metrics.DroppedNotifications.Value(); int(dropped)+len(got)-3 != 100 {
		t.Errorf("dropped %d and got %d of 100", dropped, len(got)-3)
	}
}

// When too much waits for the client, its server is no longer read, until the
// client reads on.
func TestStallAndGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits
		limits.TotalBytes = 10
		h := newHarness(t, limits)
		one, two := h.call(1, ""), h.call(2, "")
		h.answer(1)
		delivered := false
		go func() {
			h.answer(2)
			delivered = true
		}()
		synctest.Wait()
		if delivered {
			t.Fatal("the second answer was taken from the server while the first waits")
		}
		expect(t, "first call", taken(one), `"id":1,"result":{}`, "end")
		synctest.Wait()
		expect(t, "second call", taken(two), `"id":2,"result":{}`, "end")
	})
}

func TestTimeouts(t *testing.T) {
	h := newHarness(t, testLimits)
	h.AnswerCancelled = true
	one, two := h.call(1, ""), h.call(2, "")
	h.tell(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)

	h.Sweep(t.Context(), time.Now())
	expect(t, "call at first", taken(one))
	h.Sweep(t.Context(), time.Now().Add(testLimits.CancelGrace))
	expect(t, "cancelled call", taken(two), `"id":2,"error":{"code":-32800,"message":"the request was cancelled"}`, "end")
	expect(t, "other call", taken(one))
	h.Sweep(t.Context(), time.Now().Add(testLimits.CallTimeout))
	expect(t, "L-07 call", taken(one), `"id":1,"error":{"code":-32603,"message":"the call took longer than 1m0s"}`, "end")
	sent := h.server.messages()
	if last := sent[len(sent)-1]; !strings.Contains(last, `"notifications/cancelled","params":{"requestId":1`) {
		t.Errorf("the server was last told %s, want a cancellation", last)
	}
	h.answer(1) // late
	if got := h.metrics.UnmatchedAnswers.Value(); got != 1 {
		t.Errorf("unmatched answers: got %d, want 1", got)
	}
}

func TestEnd(t *testing.T) {
	h := newHarness(t, testLimits)
	general, one := h.open(), h.call(1, "")
	h.say(note)
	h.End(errors.New("the server exited with code 3"))
	h.End(errors.New("again"))
	expect(t, "T-27 call", taken(one), noteText, `"id":1,"error":{"code":-32603,"message":"the server exited with code 3"}`, "end")
	expect(t, "general stream", taken(general), "end")
	if !h.server.closed {
		t.Error("the server was not closed")
	}
	if _, err := h.Call(t.Context(), h.message(`{"jsonrpc":"2.0","id":2,"method":"m"}`)); !errors.Is(err, ErrEnded) {
		t.Errorf("call after the end: got %v", err)
	}
	if _, err := h.Open(); !errors.Is(err, ErrEnded) {
		t.Errorf("open after the end: got %v", err)
	}
}

func TestIdle(t *testing.T) {
	h := newHarness(t, testLimits)
	stream := h.open()
	if _, _, idle := h.Idle(); idle {
		t.Error("idle while a stream is read")
	}
	stream.Detach()
	stream.Detach()
	if _, _, idle := h.Idle(); !idle {
		t.Error("not idle after the stream was left")
	}
	call := h.call(1, "")
	call.Detach()
	if _, _, idle := h.Idle(); idle {
		t.Error("idle while a call is in flight")
	}
	before := time.Now()
	h.answer(1)
	if since, _, idle := h.Idle(); !idle || len(h.calls) != 0 || since.Before(before) {
		t.Error("not idle since the call was answered, for which its client may come back")
	}
}
