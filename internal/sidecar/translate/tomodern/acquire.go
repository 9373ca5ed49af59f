package tomodern

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
)

// start is a process that is being started.
type start struct {
	done bool
	err  error
}

// mostWaiting is how many calls of one address wait for room.
const mostWaiting = 16

// errProcesses says why a request is not taken, in words for its client.
var errProcesses = fmt.Errorf("%w: every process that this client may have is in use, by a call or by one that waits for its client to answer a question", fault.ErrBusy)

// asks says whether a process is for a call that may ask for input.
func (c *call) asks() bool { return c != nil && c.mayAsk }

// acquire finds a process for a call, or for another use if c is nil. The code that calls it
// must release the process.
func (g *group) acquire(ctx context.Context, c *call) (*process, error) {
	s := g.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.asks() {
		g.askers++
		defer func() { g.askers-- }()
	}
	var begun *start
	var timeout <-chan time.Time
	for {
		p, joined, err := g.tryLocked(c, begun)
		if p != nil || err != nil {
			return p, err
		}
		begun = joined
		if begun == nil && timeout == nil { // a start has its own
			if s.queues[g.shareKey] >= mostWaiting {
				return nil, s.busy(errProcesses)
			}
			s.queues[g.shareKey]++
			defer s.leaveQueueLocked(g.shareKey)
			timer := time.NewTimer(s.options.Limits.AcquireTimeout)
			defer timer.Stop()
			timeout = timer.C
		}
		if err := s.waitLocked(ctx, timeout); err != nil {
			return nil, err
		}
	}
}

func (s *Server) leaveQueueLocked(shareKey string) {
	if s.queues[shareKey]--; s.queues[shareKey] == 0 {
		delete(s.queues, shareKey)
	}
}

// waitLocked waits until a process may be free. It gives the mutex back meanwhile.
func (s *Server) waitLocked(ctx context.Context, timeout <-chan time.Time) error {
	changed := s.changed
	s.waiters++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.waiters--
	}()
	select {
	case <-changed:
		return nil
	case <-timeout:
		return s.busy(errProcesses)
	case <-ctx.Done():
		return fmt.Errorf("wait for a server process: %w", ctx.Err())
	}
}

// wakeLocked has the goroutines that wait for a process look again.
func (s *Server) wakeLocked() {
	if s.waiters > 0 {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// wakeLaterLocked is wakeLocked after some time.
func (s *Server) wakeLaterLocked(after time.Duration) {
	if s.waking {
		return
	}
	s.waking = true
	s.after(after, func() {
		s.waking = false
		s.wakeLocked()
	})
}

// tryLocked returns a process that is free. If there is none yet, it returns the start that the
// call waits for: the one that it has begun, or another if there is room.
func (g *group) tryLocked(c *call, begun *start) (*process, *start, error) {
	s := g.server
	if s.closed {
		return nil, nil, s.busy(fault.ErrDraining)
	}
	if p := g.pickLocked(c); p != nil {
		p.inFlight++
		if c.asks() {
			p.asking = c
		}
		return p, nil, nil
	}
	switch {
	case begun != nil && !begun.done:
		return nil, begun, nil
	case begun != nil && begun.err != nil:
		return nil, nil, s.busy(begun.err)
	}
	next, err := g.startLocked(c) // also if another call was faster
	if err != nil {
		err = s.busy(err)
	}
	return nil, next, err
}

// pickLocked is the process for a call: the oldest that can take it. So a client with one call
// at a time always has the same one, which knows what went before and whose lists show it. A
// call that may ask for input takes a process without such a call. A process that seems to hang
// takes none.
func (g *group) pickLocked(c *call) (picked *process) {
	for _, p := range g.processes {
		switch {
		case p.suspectLocked():
		case !c.asks():
			if picked == nil || picked.cancelling() && !p.cancelling() {
				picked = p
			}
		case p.asking == nil && picked == nil:
			picked = p
		}
	}
	return picked
}

// startLocked starts a process, or joins a start. It returns nil if there is no room for
// another.
func (g *group) startLocked(c *call) (*start, error) {
	s, limits := g.server, &g.server.options.Limits
	under := len(g.starts)
	if under > 0 && (!c.asks() || under >= g.askers) {
		return g.starts[under-1], nil // there will be one for each
	}
	if len(g.processes)+under >= limits.PerKey {
		return nil, nil //nolint:nilnil // There is no room.
	}
	backOff := s.backOffs[g.callers]
	if err := backOff.Err(); err != nil {
		return nil, err
	}
	// One process is left for clients of other addresses. Principals are not counted: a client
	// can make up any number of tokens.
	sameShare := func(other *group) bool { return other.shareKey == g.shareKey }
	inShare, starting := s.poolLocked(sameShare)
	if len(inShare)+starting >= max(limits.Children-1, 2) && !s.evictLocked(sameShare) ||
		s.children >= limits.Children && !s.evictLocked(anyGroup) {
		return nil, nil //nolint:nilnil // There is no room.
	}
	b := &start{}
	g.starts = append(g.starts, b)
	s.children++
	go g.start(b)
	return b, nil
}

func anyGroup(*group) bool { return true }

// poolLocked returns the processes of the groups that of accepts, and how many more are starting.
func (s *Server) poolLocked(of func(*group) bool) (processes []*process, starting int) {
	for _, g := range s.groups {
		if of(g) {
			processes = append(processes, g.processes...)
			starting += len(g.starts)
		}
	}
	return processes, starting
}

// evictLocked ends the least recently used idle process of the groups that of accepts, if it
// has been idle for long enough.
func (s *Server) evictLocked(of func(*group) bool) bool {
	processes, _ := s.poolLocked(of)
	idle := slices.DeleteFunc(processes, (*process).usedLocked)
	if len(idle) == 0 {
		return false
	}
	oldest := slices.MinFunc(idle, func(a, b *process) int { return a.lastUsed.Compare(b.lastUsed) })
	if left := s.options.Limits.EvictIdle - time.Since(oldest.lastUsed); left > 0 {
		s.wakeLaterLocked(left)
		return false
	}
	s.metrics.Evictions.Inc()
	oldest.dismissLocked(errEvicted)
	return true
}

// start starts a process for any call of the group, so that a client that goes away does not
// stop it.
func (g *group) start(b *start) {
	s := g.server
	ctx, cancel := context.WithTimeout(s.ctx, s.options.Limits.StartTimeout)
	defer cancel()
	p, err := g.launch(ctx)
	s.mu.Lock()
	b.done = true
	g.starts = slices.DeleteFunc(g.starts, func(other *start) bool { return other == b })
	if err == nil {
		err = p.DeadLocked() // since its last answer
	}
	if err == nil && s.closed {
		err = fault.ErrDraining
	}
	if err == nil {
		delete(s.backOffs, g.callers)
		s.metrics.Starts.Inc()
		g.processes = append(g.processes, p)
		p.listed = true
		p.idle = s.after(s.options.Limits.IdleTimeout, p.endIdleLocked)
	} else {
		s.children--
		b.err = fault.ForClients(err)
		s.startFailedLocked(g.callers, err)
	}
	g.tidyLocked()
	s.wakeLocked()
	s.mu.Unlock()
	if err != nil && p != nil {
		p.fail(err)
	}
}
