package session

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
)

// sharing returns two sessions that share a budget of 1 MiB.
func sharing(t *testing.T) (*budget.Budget, []*harness) {
	limits := testLimits
	limits.Calls, limits.TotalBytes = 100, 1<<30 // so that the budget is what is felt
	limits.Memory = budget.New(1<<20, 2)
	all := make([]*harness, 2)
	for i := range all {
		all[i] = newHarness(t, limits)
	}
	return limits.Memory, all
}

const answerBytes = 64 << 10

// flood has the server answer calls, with answerBytes each, until the session does not
// take more. It returns the streams of all calls, and how many answers the session has
// taken.
func flood(h *harness, calls int) (streams []*Stream, taken func() int) {
	for id := range calls {
		streams = append(streams, h.call(id+1, ""))
	}
	answered := 0
	go func() {
		for id := range calls {
			h.Deliver(h.message(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"text":"%s"}}`, id+1, strings.Repeat("x", answerBytes))))
			h.mu.Lock()
			answered++
			h.mu.Unlock()
		}
	}()
	return streams, func() int {
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		return answered
	}
}

// A client that does not read has its own server wait. Others have room, and once it reads
// it gets everything.
func TestSessionLeavesRoomToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 50
		memory, sessions := sharing(t)
		hog, other := sessions[0], sessions[1]
		streams, taken := flood(hog, calls)
		if n := taken(); n == 0 || n == calls {
			t.Fatalf("the session took %d of %d answers that its client does not read", n, calls)
		}
		if used := memory.Used(); used > memory.Limit() {
			t.Errorf("%d bytes of %d are used", used, memory.Limit())
		}
		if hog.metrics.Stalls.Value() != 1 {
			t.Errorf("the server was stopped %d times", hog.metrics.Stalls.Value())
		}
		stream := other.call(1, "")
		other.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"text":"%s"}}`, strings.Repeat("y", answerBytes)))
		if _, ok, _ := stream.Take(); !ok {
			t.Error("the other session's answer does not arrive")
		}
		stream.Detach()
		for _, stream := range streams {
			synctest.Wait()
			if _, ok, _ := stream.Take(); !ok {
				t.Fatal("an answer is lost")
			}
			stream.Detach()
		}
		if n := taken(); n != calls {
			t.Errorf("the session took %d of %d answers", n, calls)
		}
		hog.End(ErrEnded)
		other.End(ErrEnded)
		if used := memory.Used(); used != 0 {
			t.Errorf("%d bytes are used at the end", used)
		}
	})
}

// A session that waits for room goes on when another gives some back, though nothing happens
// in the session itself.
func TestSessionGoesOnWhenAnotherGivesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 40
		_, sessions := sharing(t)
		streams, takenFirst := flood(sessions[0], calls)
		takenFirst()
		_, takenSecond := flood(sessions[1], calls)
		before := takenSecond()
		sessions[0].End(ErrEnded)
		for _, stream := range streams {
			stream.Detach()
		}
		if after := takenSecond(); after <= before {
			t.Errorf("the session had taken %d answers, and has %d after the other ended", before, after)
		}
		sessions[1].End(ErrEnded)
	})
}

// Events that were sent make room before the server is stopped.
func TestSentEventsMakeRoomFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bytes = 200 << 10
		limits := testLimits
		limits.TotalBytes, limits.ReplayBytes, limits.Memory = 1<<30, 1<<20, budget.New(512<<10, 1)
		h := newHarness(t, limits)
		defer h.End(ErrEnded)
		for id := range 10 {
			stream := h.call(id+1, "")
			if _, ok := stream.MakeResumable(); !ok {
				t.Fatal("the stream cannot be resumed")
			}
			h.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"text":"%s"}}`, id+1, strings.Repeat("x", bytes)))
			if _, ok, _ := stream.Take(); !ok {
				t.Fatalf("answer %d does not arrive", id+1)
			}
			stream.Detach()
		}
		if stalls := h.metrics.Stalls.Value(); stalls != 0 {
			t.Errorf("the server was stopped %d times", stalls)
		}
	})
}

// A session whose client does not read ends when another, which holds less, needs the room.
// One whose client reads does not.
func TestSlowClientGivesWay(t *testing.T) {
	for name, reads := range map[string]bool{"does not read": false, "reads": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const calls = 90
				memory, sessions := sharing(t)
				hog, other := sessions[0], sessions[1]
				streams, taken := flood(hog, calls)
				taken()
				var reading sync.WaitGroup
				if reads {
					reading.Go(func() {
						for _, stream := range streams {
							time.Sleep(budget.SlowAfter / 5)
							stream.Take()
							stream.Detach()
						}
					})
				}
				stream := other.call(1, "")
				begin := time.Now()
				other.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"text":"%s"}}`, strings.Repeat("y", 6*answerBytes)))
				if _, ok, _ := stream.Take(); !ok {
					t.Error("the other session's answer does not arrive")
				}
				if waited := time.Since(begin); waited < budget.SlowAfter/10 || waited > 2*calls*budget.SlowAfter/10 {
					t.Errorf("it arrived after %s", waited)
				}
				stream.Detach()
				if ended := errors.Is(hog.EndedBy(), ErrSlow); ended == reads || hog.metrics.SlowClients.Value() == 1 == reads {
					t.Errorf("ended: %v, counted %d", hog.EndedBy(), hog.metrics.SlowClients.Value())
				}
				reading.Wait()
				for _, stream := range streams {
					stream.Detach()
				}
				hog.End(ErrEnded)
				other.End(ErrEnded)
				if used := memory.Used(); used != 0 {
					t.Errorf("%d bytes are used at the end", used)
				}
			})
		})
	}
}

// What a client of a session that has ended does not read makes room, too: the write is
// interrupted. One that reads piece by piece is left alone.
func TestEndedSessionGivesWay(t *testing.T) {
	for name, reads := range map[string]bool{"does not read": false, "reads": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, sessions := sharing(t)
				hog, other := sessions[0], sessions[1]
				large := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"text":"%s"}}`, strings.Repeat("x", 600<<10))
				writing := hog.call(1, "")
				hog.say(large)
				if _, ok, _ := writing.Take(); !ok {
					t.Fatal("the answer does not arrive")
				}
				interrupted := make(chan struct{}, 100)
				writing.Interruptible(func() { interrupted <- struct{}{} })
				hog.End(ErrClient)
				began, over := time.Now(), make(chan struct{})
				var waited time.Duration
				go func() {
					defer close(over)
					for {
						select {
						case <-interrupted:
						case <-time.After(time.Second):
							if !reads || time.Since(began) < 20*time.Second {
								if reads {
									writing.Wrote()
								}
								continue
							}
						}
						waited = time.Since(began)
						writing.Interruptible(nil)
						writing.Detach()
						return
					}
				}()
				stream := other.call(1, "")
				other.say(large)
				<-over
				if _, ok, _ := stream.Take(); !ok {
					t.Error("the other session's answer does not arrive")
				}
				stream.Detach()
				if reads != (waited >= 20*time.Second) || waited < budget.SlowAfter {
					t.Errorf("the write was over after %s", waited)
				}
				other.End(ErrEnded)
				if used := memory.Used(); used != 0 {
					t.Errorf("%d bytes are used at the end", used)
				}
			})
		})
	}
}

// A session that holds what its client may come back for forgets that before it is refused
// anything, and a client that is up to date is never refused.
func TestMakeRoom(t *testing.T) {
	limits := testLimits
	limits.ReplayBytes, limits.Memory = 1<<20, budget.New(512<<10, 1)
	h := newHarness(t, limits)
	defer h.End(ErrEnded)
	stream := h.call(1, "")
	if _, ok := stream.MakeResumable(); !ok {
		t.Fatal("the stream cannot be resumed")
	}
	h.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"text":"%s"}}`, strings.Repeat("x", 100<<10)))
	stream.Take()
	stream.Detach()
	limits.Memory.Take(400 << 10)
	if h.replay.bytes == 0 || h.account.Fits(100<<10) {
		t.Fatalf("%d bytes are kept, %d used", h.replay.bytes, limits.Memory.Used())
	}
	if !h.MakeRoom(100<<10) || h.replay.bytes != 0 {
		t.Errorf("no room was made, %d bytes are kept", h.replay.bytes)
	}
	limits.Memory.Take(100 << 10)
	if !h.MakeRoom(100 << 10) {
		t.Error("a client that is up to date is refused")
	}
	late := h.call(2, "")
	defer late.Detach()
	h.Deliver(Message{Bytes: []byte(`{"jsonrpc":"2.0","id":2,"result":{"text":"` + strings.Repeat("x", 100<<10) + `"}}`), Envelope: h.message(`{"jsonrpc":"2.0","id":2,"result":{}}`).Envelope, Charged: true})
	if h.MakeRoom(100 << 10) {
		t.Error("a client that much waits for is not refused")
	}
}

// A session takes over the room that a large message had in the buffer of its reader. Until it
// does, and if it does not need the message, no room is lost and none is used twice.
func TestDeliverTakesRoomOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 200 << 10
		limits := testLimits
		limits.TotalBytes, limits.Memory = size, budget.New(1<<20, 1)
		h := newHarness(t, limits)
		buffer := limits.Memory.Account(nil)
		deliver := func(text string) {
			message := h.message(text)
			message.Owned, message.Charged, message.Room = true, true, buffer
			buffer.Change(len(message.Bytes))
			h.Deliver(message)
		}
		answer := func(id int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"text":"%s"}}`, id, strings.Repeat("x", size))
		}
		want := func(name string, inSession, inBuffer int64) {
			t.Helper()
			synctest.Wait()
			if held, read := h.account.Held()>>10, buffer.Held()>>10; held != inSession>>10 || read != inBuffer>>10 {
				t.Errorf("%s: the session holds %d KiB, the buffer %d, want %d and %d", name, held, read, inSession>>10, inBuffer>>10)
			}
			if used := limits.Memory.Used(); used > h.account.Held()+buffer.Held() {
				t.Errorf("%s: %d bytes are used", name, used)
			}
		}
		deliver(answer(7))
		want("no call", 0, 0)
		deliver(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", size) + `"}}`)
		want("ping", 0, 0)
		streams := []*Stream{h.call(1, ""), h.call(2, "")}
		deliver(answer(1))
		want("answer", size+1<<10, 0)
		go deliver(answer(2))
		want("more than may wait", size+1<<10, size)
		for _, stream := range streams {
			stream.Detach()
		}
		h.End(ErrEnded)
		want("end", 0, 0)
		if used := limits.Memory.Used(); used != 0 {
			t.Errorf("%d bytes are used at the end", used)
		}
	})
}
