package child

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/launcher"
)

// recentSlots is how many parts the window has. A part leaves it as a whole.
const recentSlots = 30

const slotLength = adapterapi.ProcessWindow / recentSlots

// recent counts how processes ended in the last adapterapi.ProcessWindow. Its size does not depend
// on how many end.
type recent struct {
	mu    sync.Mutex
	slots [recentSlots]slot // each at its number modulo recentSlots
}

// slot counts the ends of slotLength. The counts of a whole window are a slot, too.
type slot struct {
	number int64 // since 1970
	counts adapterapi.Processes
	causes map[string]int64 // of processes that failed; the causes are few
}

// add counts an end. The cause is empty if the process did not fail.
func (r *recent) add(now time.Time, end adapterapi.Processes) {
	r.mu.Lock()
	defer r.mu.Unlock()
	number := now.UnixNano() / int64(slotLength)
	into := &r.slots[number%recentSlots]
	if into.number != number {
		*into = slot{number: number, causes: map[string]int64{}}
	}
	into.add(end.Cause, 1)
	into.counts.Ended += end.Ended
	into.counts.Crashed += end.Crashed
	into.counts.OutOfMemory += end.OutOfMemory
	into.counts.Unstartable += end.Unstartable
}

func (s *slot) add(cause string, count int64) {
	if cause != "" {
		s.causes[cause] += count
	}
}

// sum returns the counts of the window that ends now, and the most frequent cause.
func (r *recent) sum(now time.Time) adapterapi.Processes {
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := now.UnixNano()/int64(slotLength) - recentSlots
	all := slot{causes: map[string]int64{}}
	for i := range r.slots {
		part := &r.slots[i]
		if part.number <= oldest {
			continue
		}
		all.counts.Ended += part.counts.Ended
		all.counts.Crashed += part.counts.Crashed
		all.counts.OutOfMemory += part.counts.OutOfMemory
		all.counts.Unstartable += part.counts.Unstartable
		for cause, count := range part.causes {
			all.add(cause, count)
		}
	}
	for cause, count := range all.causes {
		most := all.causes[all.counts.Cause]
		if count > most || count == most && cause < all.counts.Cause {
			all.counts.Cause = cause
		}
	}
	return all.counts
}

// Processes counts how the pool's processes ended recently.
func (p *Pool) Processes() adapterapi.Processes { return p.recent.sum(time.Now()) }

// noteEnd counts a process that has ended.
func (p *Pool) noteEnd(s *Server) {
	end := adapterapi.Processes{Ended: 1}
	if exit := s.process.Exit(); s.crashed() {
		end.Crashed, end.Cause = 1, causeOf(exit)
		if exit.OOM {
			end.OutOfMemory = 1
		}
	}
	p.recent.add(time.Now(), end)
}

// crashed says whether the end of the process is a fault of the server. A process that got a request
// which it need not know, and ended instead of an answer, has none.
func (s *Server) crashed() bool {
	return !s.stopped.Load() && (!s.tentative.Load() || s.spoke.Load())
}

// causeOf describes an end without anything that the process wrote.
func causeOf(exit launcher.Exit) string {
	switch {
	case exit.Lost:
		return "the server's container ended"
	case exit.OOM:
		return "out of memory"
	case exit.Signal != 0:
		return "signal " + strconv.Itoa(int(exit.Signal))
	}
	return "exit code " + strconv.Itoa(exit.Code)
}

// noteStartFailure counts a process that could not be started. It does not count a start that no client
// waits for any more, or one without a running server container, because the kubelet starts that.
func (p *Pool) noteStartFailure(err error) {
	if cause := causeOfStart(err); cause != "" {
		p.recent.add(time.Now(), adapterapi.Processes{Ended: 1, Unstartable: 1, Cause: cause})
	}
}

func causeOfStart(err error) string {
	if errors.Is(err, launcher.ErrNoLauncher) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return ""
	}
	refused, ok := errors.AsType[*launcher.RefusedError](err)
	if !ok {
		return "the command cannot be started"
	}
	switch refused.Reason {
	case launcher.ReasonStopping:
		return ""
	case launcher.ReasonMemory:
		return "no memory for another process"
	case launcher.ReasonPIDs:
		return "too many processes and threads"
	default: // the launcher may be of another version
		return "no room for another process"
	}
}
