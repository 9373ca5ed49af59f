package child

import (
	"sync"
	"time"
)

// pacedStarts is how many starts the average is of. They are the last ones: the first process of a container reads
// files that later ones find in memory, and a package manager downloads what later processes find on the disk.
const pacedStarts = 8

// pace is how long processes take from their start to their first message. It knows nothing of spares: a process says
// nothing before a client does, so its first message does not tell when it was ready.
type pace struct {
	mu    sync.Mutex
	last  [pacedStarts]time.Duration
	count int // of all starts
}

// started counts a start. A client that has gone, or a server that waits for something else, is no reason to count more
// than the time after which a process no longer counts as starting.
func (p *pace) started(took, most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[p.count%pacedStarts] = min(took, most)
	p.count++
}

func (p *pace) average() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := min(p.count, pacedStarts)
	if known == 0 {
		return 0
	}
	var sum time.Duration
	for _, took := range p.last[:known] {
		sum += took
	}
	return sum / time.Duration(known)
}
