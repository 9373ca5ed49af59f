package session

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// generous are limits as the adapter has them.
var generous = Limits{
	Calls: 1024, Streams: 16, Detached: 64, Requests: 256,
	ReplayBytes: 1 << 20, PendingBytes: 4 << 20, TotalBytes: 132 << 20,
	CallTimeout: time.Hour, CancelGrace: 5 * time.Second, DeliveryTimeout: 10 * time.Second, RequestTimeout: 10 * time.Minute,
}

// asking is a request of the server's.
func asking(id int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":"s%d","method":"elicitation/create"}`, id)
}

// A server that asks a client that reads and never answers is refused past a number, and
// told when the client has had its time. What is answered makes room.
func TestServerRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, testLimits)
		defer h.End(ErrEnded)
		stream := h.open()
		for i := range testLimits.Requests + 2 {
			h.say(asking(i))
		}
		synctest.Wait()
		if got := len(taken(stream)); got != testLimits.Requests {
			t.Errorf("%d requests reach the client, want %d", got, testLimits.Requests)
		}
		refused := func(id int, text string) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":"s%d","error":{"code":-32603,"message":%q}}`, id, text)
		}
		told := []string{refused(8, refusedTooMany), refused(9, refusedTooMany)}
		expect(t, "server", h.server.messages(), told...)
		if got := h.metrics.RefusedRequests.Value(); got != 2 {
			t.Errorf("%d refusals are counted, want 2", got)
		}

		time.Sleep(testLimits.RequestTimeout / 2)
		h.tell(`{"jsonrpc":"2.0","id":"s0","result":{}}`)
		h.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s1"}}`)
		h.say(asking(10))
		h.say(asking(11))
		h.say(asking(12))
		expect(t, "client", taken(stream), `"method":"notifications/cancelled","params":{"requestId":"s1"}`,
			`"id":"s10","method":"elicitation/create"`, `"id":"s11","method":"elicitation/create"`)
		synctest.Wait()
		told = append(told, `{"jsonrpc":"2.0","id":"s0","result":{}}`, refused(12, refusedTooMany))
		expect(t, "server", h.server.messages(), told...)

		time.Sleep(testLimits.RequestTimeout / 2)
		synctest.Wait()
		if got := h.metrics.ExpiredRequests.Value(); got != 6 || len(h.serverRequests) != 2 || h.requestBytes != len(`"s10""s11"`) {
			t.Errorf("%d requests have expired, %d are left with %d bytes; want 6 and 2", got, len(h.serverRequests), h.requestBytes)
		}
		late := 0
		for _, got := range h.server.messages() {
			if strings.Contains(got, refusedNoAnswer+"1m0s") {
				late++
			}
		}
		if late != 6 {
			t.Errorf("the server is told %d times that there is no answer, want 6", late)
		}
		h.tell(`{"jsonrpc":"2.0","id":"s2","result":{}}`) // late
		if got := h.metrics.UnmatchedAnswers.Value(); got != 1 {
			t.Errorf("%d answers are unmatched, want 1", got)
		}
	})
}

// Each call in flight may have a request of its own, however many calls there are.
func TestServerRequestsOfCalls(t *testing.T) {
	limits := generous
	limits.Requests = 1
	h := newHarness(t, limits)
	defer h.End(ErrEnded)
	stream := h.open()
	for i := range 100 {
		h.call(i, "")
	}
	for i := range 102 {
		h.say(asking(i))
	}
	if got := len(taken(stream)); got != 101 || h.metrics.RefusedRequests.Value() != 1 {
		t.Errorf("%d requests reach the client, and %d are refused; want 101 and 1", got, h.metrics.RefusedRequests.Value())
	}
}

// A request that expires before its client has read it is not sent any more.
func TestExpiredRequestIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, testLimits)
		defer h.End(ErrEnded)
		stream := h.open()
		h.say(ask)
		h.say(note)
		time.Sleep(testLimits.RequestTimeout)
		synctest.Wait()
		expect(t, "client", taken(stream), noteText)
		if stream.Detach(); h.waiting != 0 {
			t.Errorf("%d bytes wait", h.waiting)
		}
	})
}

// Once the stream of a request is gone, the session sends the server's messages about the request on the next stream.
func TestCancelledRequestOfAStreamThatIsOver(t *testing.T) {
	h := newHarness(t, testLimits)
	defer h.End(ErrEnded)
	stream := h.call(1, "")
	resumable(t, stream)
	h.say(ask)
	h.answer(1)
	taken(stream)
	stream.Detach()
	h.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s1"}}`)
	expect(t, "next stream", taken(h.open()), `"method":"notifications/cancelled","params":{"requestId":"s1"}`)
	if h.waiting != 0 || len(h.serverRequests) != 0 {
		t.Errorf("%d bytes wait, %d requests are left", h.waiting, len(h.serverRequests))
	}
}

// deaf is a server that does not read. It says when it is sent something.
type deaf struct {
	sent  chan struct{}
	close context.CancelFunc
	until context.Context
}

func newDeaf() *deaf {
	until, stop := context.WithCancel(context.Background())
	return &deaf{make(chan struct{}, 1), stop, until}
}

func (d *deaf) Send(context.Context, Message) error {
	select {
	case d.sent <- struct{}{}:
	default:
	}
	<-d.until.Done()
	return d.until.Err()
}

func (d *deaf) Close() { d.close() }

// processorTime is how long the test's process has used a processor.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// A process that writes requests before there is any client stream costs the adapter, which
// all sessions share, next to nothing, also if it reads none of their answers.
func TestRequestsWithoutAStreamAreCheap(t *testing.T) {
	for name, most := range map[string]int{"refused": 256, "waiting": 0} {
		t.Run(name, func(t *testing.T) {
			limits := generous
			limits.Requests = most
			var messages []Message
			h := newHarness(t, limits)
			for i := range 50_000 {
				messages = append(messages, h.message(asking(i)))
			}
			synctest.Test(t, func(t *testing.T) {
				server := newDeaf()
				s := New(server, limits, &Metrics{})
				defer s.End(ErrEnded)
				before := processorTime(t)
				for _, message := range messages {
					s.Deliver(message)
				}
				time.Sleep(2 * limits.DeliveryTimeout)
				synctest.Wait()
				if took := processorTime(t) - before; took > time.Second {
					t.Errorf("they take %s of the processor", took)
				}
				if got := runtime.NumGoroutine(); got > 1000 {
					t.Errorf("there are %d goroutines", got)
				}
				select {
				case <-server.sent:
				default:
					t.Error("the server is sent no refusal")
				}
				if len(s.serverRequests) != 0 || s.waiting != 0 || s.backlog.len() != 0 {
					t.Errorf("%d requests are left, %d wait, with %d bytes", len(s.serverRequests), s.backlog.len(), s.waiting)
				}
			})
		})
	}
}

// The code that reads the server's output never waits for the server to read, also if the
// server sends pings and reads no answer. What waits for the server is bounded.
func TestPingsOfAServerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, metrics := newDeaf(), &Metrics{}
		s := New(server, testLimits, metrics)
		defer s.End(ErrEnded)
		h := &harness{Session: s, t: t}
		const pings = 1000
		delivered := make(chan struct{})
		go func() {
			defer close(delivered)
			for i := range pings {
				h.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i))
			}
		}()
		synctest.Wait()
		select {
		case <-delivered:
		default:
			server.close()
			t.Fatal("the reader of the server's output waits for the server to read")
		}
		s.mu.Lock()
		waiting := s.replies.queue.len()
		s.mu.Unlock()
		if waiting == 0 || waiting > testLimits.PendingBytes/128 {
			t.Errorf("%d answers wait", waiting)
		}
		if got := metrics.DroppedReplies.Value(); int(got)+waiting+1 != pings {
			t.Errorf("%d answers wait, one is written, and %d are dropped, of %d", waiting, got, pings)
		}
		server.close()
		synctest.Wait()
		if got := metrics.DroppedReplies.Value(); got != pings {
			t.Errorf("after the server fails, %d of %d answers are dropped", got, pings)
		}
	})
}

// The same for a stream that a client does not read: what waits on it is not looked through
// for each event, whatever it is.
func TestEventsBehindRequestsAreCheap(t *testing.T) {
	limits := generous
	limits.Requests = 0
	h := newHarness(t, limits)
	defer h.End(ErrEnded)
	for _, open := range []bool{false, true} {
		if open {
			h.open()
		}
		for i := range 2000 {
			h.say(asking(i))
		}
		message := h.message(note)
		before := processorTime(t)
		for range 50_000 { // several times of what may wait
			h.Deliver(message)
		}
		if took := processorTime(t) - before; took > time.Second {
			t.Errorf("they take %s of the processor, with a stream: %v", took, open)
		}
	}
	if h.metrics.DroppedNotifications.Value() == 0 {
		t.Error("nothing was dropped")
	}
}

// heap is what is in use when nothing that can be freed is counted.
func heap() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// Limits in bytes are limits of memory, however small the events are.
func TestSmallEventsAreCounted(t *testing.T) {
	const total = 8 << 20
	limits := generous
	limits.Calls, limits.Requests, limits.Detached = 1<<20, 0, 0
	limits.PendingBytes, limits.ReplayBytes, limits.TotalBytes = total, total, total
	full := func(h *harness) bool { return h.waiting > total }
	for name, fill := range map[string]func(h *harness){
		"notifications to a reader that does not read": func(h *harness) {
			h.open()
			message := h.message(note)
			for range 1_000_000 {
				h.Deliver(message)
			}
			if h.metrics.DroppedNotifications.Value() == 0 {
				t.Error("nothing was dropped")
			}
		},
		"requests to a reader that does not read": func(h *harness) {
			h.open()
			for i := 0; !full(h); i++ {
				h.say(asking(i))
			}
		},
		"requests without a stream": func(h *harness) {
			for i := 0; !full(h); i++ {
				h.say(asking(i))
			}
		},
		"answers that their client has not come back for": func(h *harness) {
			for i := 0; !full(h); i++ {
				stream := h.call(i, "")
				resumable(t, stream)
				stream.Detach()
				h.answer(i)
			}
		},
		"what is kept of streams that were read": func(h *harness) {
			for i := 0; i == 0 || h.streams[1] != nil; i++ {
				stream := h.call(i, "")
				resumable(t, stream)
				h.answer(i)
				taken(stream)
				stream.Detach()
			}
		},
		"a stream of which little is left": func(h *harness) {
			message := h.message(note)
			for range 16 {
				stream := h.open()
				for !full(h) && h.metrics.DroppedNotifications.Value() == 0 {
					h.Deliver(message)
				}
				for stream.len() > 1 {
					stream.Take()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, limits)
			defer h.End(ErrEnded)
			h.server.forget = true
			before := heap()
			fill(h)
			grown := heap() - before
			t.Logf("%d KiB are held where %d may be, and %d are counted", grown>>10, total>>10, (h.waiting+h.replay.bytes)>>10)
			if grown > total*3/2 {
				t.Errorf("%d KiB are held, want at most %d", grown>>10, total*3/2>>10)
			}
			runtime.KeepAlive(h)
		})
	}
}

// What is counted for an event and a stream is what they take.
func TestOverheads(t *testing.T) {
	if size := 4 * int(unsafe.Sizeof(Event{})); size > eventOverhead {
		t.Errorf("an event takes up to %d bytes, and %d are counted", size, eventOverhead)
	}
	if size := int(unsafe.Sizeof(Stream{})) + 96; size > streamOverhead { // with its channel
		t.Errorf("a stream takes %d bytes, and %d are counted", size, streamOverhead)
	}
}

// A client that goes away from call after call leaves so many streams, and no more. Those
// that it left first are given up, with their answers and without.
func TestDetachedStreamsAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		answered bool
		answers  uint64 // that are given up
	}{"answered": {true, 10}, "not answered": {false, 0}} {
		t.Run(name, func(t *testing.T) {
			limits := testLimits
			limits.Calls = 2 * limits.Detached
			h := newHarness(t, limits)
			defer h.End(ErrEnded)
			var beginnings []string
			for i := range limits.Detached + 10 {
				stream := h.call(i, "")
				beginnings = append(beginnings, resumable(t, stream))
				if test.answered {
					h.answer(i)
				}
				stream.Detach()
			}
			if streams, answers := h.metrics.AbandonedStreams.Value(), h.metrics.AbandonedAnswers.Value(); streams != 10 || answers != test.answers {
				t.Errorf("%d streams and %d answers are given up, want 10 and %d", streams, answers, test.answers)
			}
			if !test.answered {
				for i := range limits.Detached + 10 {
					h.answer(i)
				}
			}
			if len(h.streams) != limits.Detached || len(h.detached) != limits.Detached {
				t.Errorf("%d streams are left, %d of them detached", len(h.streams), len(h.detached))
			}
			for i, beginning := range beginnings {
				stream, err := h.Resume(beginning)
				if kept := err == nil; kept != (i >= 10) {
					t.Errorf("stream %d: %v", i, err)
				} else if kept {
					expect(t, "stream", taken(stream), fmt.Sprintf(`"id":%d,"result":{}`, i), "end")
					stream.Detach()
				}
			}
			if h.waiting != 0 || len(h.detached) != 0 {
				t.Errorf("%d bytes wait, %d streams are detached", h.waiting, len(h.detached))
			}
		})
	}
}

// What a session keeps of a call has a bound, and a refused call leaves nothing behind.
func TestNamesThatAreLong(t *testing.T) {
	h := newHarness(t, generous)
	defer h.End(ErrEnded)
	long := strings.Repeat("x", nameBytes)
	for name, text := range map[string]string{
		"id":    `{"jsonrpc":"2.0","id":"` + long + `","method":"ping"}`,
		"token": `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"task":{},"_meta":{"progressToken":"` + long + `"}}}`,
	} {
		short := h.message(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		if _, err := h.Call(t.Context(), short, h.message(text)); !errors.Is(err, ErrLongName) {
			t.Errorf("%s: %v", name, err)
		}
		if len(h.calls) != 0 || len(h.streams) != 0 {
			t.Errorf("%s: %d calls and %d streams are left", name, len(h.calls), len(h.streams))
		}
	}
}
