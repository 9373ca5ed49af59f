package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
)

// life is a session whose client and server do things at random.
type life struct {
	*harness
	random  *rand.Rand
	readers []*Stream // that have not gone
	ids     []string  // of events
	calls   int
	asked   int
}

func (l *life) reader() *Stream {
	if len(l.readers) == 0 {
		return nil
	}
	return l.readers[l.random.IntN(len(l.readers))]
}

// step does one thing, and says which.
func (l *life) step() string {
	reader, recent := l.reader(), max(0, l.calls-l.random.IntN(6))
	switch l.random.IntN(13) {
	case 0:
		l.calls++
		if stream, err := l.Call(l.t.Context(), l.message(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m","params":{"_meta":{"progressToken":%d}}}`, l.calls, l.calls))); err == nil {
			l.readers = append(l.readers, stream)
		}
		return "call"
	case 1:
		l.readers = append(l.readers, l.open())
		return "open"
	case 2:
		if reader != nil {
			if id, ok := reader.MakeResumable(); ok {
				l.ids = append(l.ids, id)
			}
		}
		return "make resumable"
	case 3, 4:
		if reader != nil {
			event, ok, _ := reader.Take()
			if id := reader.AppendID(nil, event); ok && len(id) > 0 {
				l.ids = append(l.ids, string(id))
			}
		}
		return "take"
	case 5:
		if reader != nil {
			reader.Detach()
			l.readers = slices.DeleteFunc(l.readers, func(r *Stream) bool { return r == reader })
		}
		return "detach"
	case 6:
		if len(l.ids) > 0 {
			if stream, err := l.Resume(l.ids[len(l.ids)-1-l.random.IntN(min(8, len(l.ids)))]); err == nil {
				l.readers = append(l.readers, stream)
			}
		}
		return "resume"
	case 7:
		l.say(note)
		return "notification"
	case 8:
		l.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d}}`, recent))
		return "progress"
	case 9:
		l.asked++
		l.say(asking(l.asked - l.random.IntN(2)))
		return "request"
	case 10:
		l.answer(recent)
		return "answer"
	case 11:
		which := max(0, l.asked-l.random.IntN(6))
		switch l.random.IntN(3) {
		case 0:
			l.tell(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, recent))
		case 1:
			l.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s%d"}}`, which))
		default:
			l.tell(fmt.Sprintf(`{"jsonrpc":"2.0","id":"s%d","result":{}}`, which))
		}
		return "cancellation or answer to the server"
	default:
		time.Sleep(time.Duration(l.random.IntN(3000)) * time.Millisecond)
		l.Sweep(l.t.Context(), time.Now())
		return "time"
	}
}

func costs(events []Event) (sum int) {
	for i := range events {
		sum += events[i].cost()
	}
	return sum
}

// books compares what the session keeps count of with what there is.
func (l *life) books() (problems []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := func(what string, got, want int) {
		if got != want {
			problems = append(problems, fmt.Sprintf("%s: %d, want %d", what, got, want))
		}
	}
	waiting, attached, generals := costs(l.backlog.sure.all())+costs(l.backlog.notices.all()), 0, 0
	for _, reader := range l.readers {
		waiting += reader.inHand
	}
	for _, st := range l.streams {
		waiting += costs(st.sure.all()) + costs(st.notices.all()) + costs(st.repeats)
		same("cost of notifications", st.noticeBytes, costs(st.notices.all()))
		if st.reader != nil {
			attached++
		}
		if st.reader != nil && st.general {
			generals++
		}
		if st.isDead() && st.len() > 0 {
			problems = append(problems, "something waits on a dead stream")
		}
	}
	for _, reader := range l.readers { // a stream may be forgotten before its reader goes
		if reader.reader == reader && l.streams[reader.number] == nil {
			attached++
			same("events on a stream that is forgotten", reader.len(), 0)
		}
	}
	same("waiting", l.waiting, waiting)
	same("attached", l.attached, attached)
	same("general streams", len(l.generals), generals)
	ids, kept, streams := 0, 0, map[*stream]bool{}
	for _, request := range l.serverRequests {
		ids += len(request.id)
	}
	for _, sent := range l.replay.sent.all() {
		kept += len(sent.event.Message) + eventOverhead
		streams[sent.stream] = true
	}
	same("ids of requests", l.requestBytes, ids)
	same("replay", l.replay.bytes, kept+len(streams)*streamOverhead)
	same("account", int(l.account.Held()), l.waiting+l.replay.bytes+l.requestBytes+l.replies.bytes)
	for _, st := range l.detached {
		if st.reader != nil || st.general || !st.resumable || l.streams[st.number] != st {
			problems = append(problems, "a stream that is not detached is among those that are")
		}
	}
	same("detached streams beyond the limit", max(0, len(l.detached)-l.limits.Detached), 0)
	live := 0
	for _, c := range l.Session.calls {
		if c.isLive() {
			live++
		}
	}
	if newest, only := l.newestCallLocked(); (newest != nil) != (live > 0) || only != (live == 1) {
		problems = append(problems, fmt.Sprintf("the newest call is the only one: %v, of %d", only, live))
	}
	return problems
}

// Whatever clients and servers do, the session knows what it holds, and holds nothing when
// they are done.
func TestBooksAreRight(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			limits := testLimits
			limits.Memory = budget.New(1<<30, 1<<20)
			limits.Detached, limits.ReplayBytes, limits.CommitAfter, limits.RequestTimeout = 3, 6<<10, time.Second, 20*time.Second
			l := &life{harness: newHarness(t, limits), random: rand.New(rand.NewPCG(seed, 0))}
			defer l.End(ErrEnded)
			var done []string
			for range 300 {
				done = append(done, l.step())
				if problems := l.books(); len(problems) > 0 {
					t.Fatalf("seed %d, after %q: %q", seed, done[max(0, len(done)-10):], problems)
				}
			}
			endsFirst := seed%2 == 1
			if endsFirst {
				l.End(ErrEnded)
			}
			for _, reader := range l.readers {
				reader.Detach()
			}
			l.readers = nil
			if endsFirst {
				synctest.Wait()
				if held, used := l.account.Held(), limits.Memory.Used(); held != 0 || used != 0 {
					t.Errorf("seed %d: %d bytes are held after the end, %d of the budget: %q", seed, held, used, l.books())
				}
				return
			}
			time.Sleep(limits.CallTimeout)
			l.Sweep(t.Context(), time.Now())
			synctest.Wait()
			taken(l.open())
			time.Sleep(limits.RequestTimeout)
			synctest.Wait()
			if problems := l.books(); len(problems) > 0 || len(l.Session.calls) != 0 || len(l.serverRequests) != 0 || len(l.live) != 0 {
				t.Errorf("seed %d, at the end: %q, %d calls, %d requests", seed, problems, len(l.Session.calls), len(l.serverRequests))
			}
		})
	}
}
