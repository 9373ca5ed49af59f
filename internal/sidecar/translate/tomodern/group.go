package tomodern

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

// group is the processes for clients that may share some and have the same capabilities. It
// is no mux.Supervisor, which has one process: each call that may ask has one of its own.
type group struct {
	server       *Server
	name         string
	caller       *caller.Caller // the first of them
	shares       string         // what all of them have in common
	pays         string         // the address whose share these processes count toward
	capabilities capabilities

	// Guarded by the server's mutex.
	users       int       // requests that are looking for a process
	wanting     int       // of these, those whose call may ask
	workers     []*worker // oldest first
	starts      []*start  // that are under way
	listens     map[*listen]struct{}
	topics      map[string]*topic // by the resource's URI
	topicBytes  int               // of these, as they are sent
	holder      *worker           // has the subscriptions
	heldSince   time.Time
	lostHolders int                   // in a row that did not last
	taskTools   toolindex.Index[bool] // those that can only be called as tasks; has its own lock
	lastUsed    time.Time
}

// start is a process that is being started.
type start struct {
	over bool
	err  error
}

// Reasons for which a request is not taken, in words for its client.
var (
	errCapabilities = fmt.Errorf("%w: this client uses the server with as many different capabilities as it may; one set is free when its calls are over and answered", fault.ErrBusy)
	errProcesses    = fmt.Errorf("%w: every process that this client may have is in use, by a call or by one that waits for its client to answer a question", fault.ErrBusy)
)

// join returns the group of a client. Whoever has it must leave it.
func (s *Server) join(from *caller.Caller, c capabilities) (*group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.busy(fault.ErrDraining)
	}
	shares := from.Group()
	name := shares + " " + c.text()
	g := s.groups[name]
	if g == nil {
		if !s.roomForGroupLocked(shares) {
			return nil, s.busy(errCapabilities)
		}
		g = &group{
			server: s, name: name, caller: from.Lasting(), shares: shares, pays: from.ShareKey(), capabilities: c,
			listens: map[*listen]struct{}{}, topics: map[string]*topic{},
		}
		s.groups[name] = g
	}
	g.users++
	return g, nil
}

func (g *group) leave() {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	g.leaveLocked()
}

func (g *group) leaveLocked() {
	g.users--
	g.lastUsed = time.Now()
	g.tidyLocked()
}

// tidyLocked forgets a group that has nothing.
func (g *group) tidyLocked() {
	if g.users == 0 && len(g.workers) == 0 && len(g.starts) == 0 && len(g.listens) == 0 && g.server.groups[g.name] == g {
		delete(g.server.groups, g.name)
	}
}

func (g *group) idleLocked() bool {
	return g.users == 0 && len(g.starts) == 0 && len(g.listens) == 0 && !slices.ContainsFunc(g.workers, (*worker).usedLocked)
}

// roomForGroupLocked says whether callers that share processes may have one more group,
// for which the one that was longest unused has to go.
func (s *Server) roomForGroupLocked(shares string) bool {
	var oldest *group
	count := 0
	for _, g := range s.groups {
		if g.shares != shares {
			continue
		}
		count++
		if g.idleLocked() && (oldest == nil || g.lastUsed.Before(oldest.lastUsed)) {
			oldest = g
		}
	}
	if count < s.options.Limits.KeysPerPrincipal {
		return true
	}
	if oldest == nil {
		return false
	}
	for _, w := range slices.Clone(oldest.workers) {
		s.metrics.Evictions.Inc()
		w.dismissLocked(errEvicted)
	}
	return true
}

// acquire finds a process for a call, or for anything else if c is nil. Whoever has it
// must release it.
func (g *group) acquire(ctx context.Context, c *call) (*worker, error) {
	s := g.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c != nil && c.leased {
		g.wanting++
		defer func() { g.wanting-- }()
	}
	var began *start
	var timeout <-chan time.Time
	for {
		w, err := g.tryLocked(c, &began)
		if w != nil || err != nil {
			return w, err
		}
		if began == nil && timeout == nil { // a start has its own
			if s.queues[g.pays] >= mostWaiting {
				return nil, s.busy(errProcesses)
			}
			s.queues[g.pays]++
			defer s.leaveQueueLocked(g.pays)
			timer := time.NewTimer(s.options.Limits.LeaseTimeout)
			defer timer.Stop()
			timeout = timer.C
		}
		if err := s.waitLocked(ctx, timeout); err != nil {
			return nil, err
		}
	}
}

// mostWaiting is how many calls of one address wait for room.
const mostWaiting = 16

func (s *Server) leaveQueueLocked(pays string) {
	if s.queues[pays]--; s.queues[pays] == 0 {
		delete(s.queues, pays)
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

// tryLocked returns a process that is free, or sees to it that there will be one.
func (g *group) tryLocked(c *call, began **start) (*worker, error) {
	s := g.server
	if s.closed {
		return nil, s.busy(fault.ErrDraining)
	}
	if w := g.pickLocked(c); w != nil {
		w.inFlight++
		if c != nil && c.leased {
			w.lease = c
		}
		return w, nil
	}
	if b := *began; b != nil && b.over {
		if b.err != nil {
			return nil, s.busy(b.err)
		}
		*began = nil // somebody was faster
	}
	if *began == nil {
		b, err := g.startLocked(c)
		if err != nil {
			return nil, s.busy(err)
		}
		*began = b
	}
	return nil, nil //nolint:nilnil // There is none yet.
}

// pickLocked is the process for a call: the oldest that can take it, so that a client
// with one call at a time always has the same one, which knows what went before and whose
// lists show it. For a call that may ask, that is one without such a call. One that seems
// to hang takes none.
func (g *group) pickLocked(c *call) (picked *worker) {
	for _, w := range g.workers {
		switch {
		case w.doubtful():
		case c == nil || !c.leased:
			if picked == nil || picked.cancelling() && !w.cancelling() {
				picked = w
			}
		case w.lease == nil && picked == nil:
			picked = w
		}
	}
	return picked
}

// startLocked starts a process, or joins a start. It returns nil if there is no room for
// another.
func (g *group) startLocked(c *call) (*start, error) {
	s, limits := g.server, &g.server.options.Limits
	leased := c != nil && c.leased
	under := len(g.starts)
	switch {
	case under > 0 && (!leased || under >= g.wanting):
		return g.starts[under-1], nil // there will be one for everybody
	case len(g.workers)+len(g.starts) >= limits.PerKey:
		return nil, nil //nolint:nilnil // There is no room.
	}
	backOff := s.backOffs[g.shares]
	if err := backOff.Err(); err != nil {
		return nil, err
	}
	// One process is left for clients of other addresses. Principals are not counted: a token
	// costs nothing to make up.
	if s.heldLocked(g.pays) >= max(limits.Children-1, 2) && !s.evictLocked(func(other *group) bool { return other.pays == g.pays }) {
		return nil, nil //nolint:nilnil // There is no room.
	}
	if s.children >= limits.Children && !s.evictLocked(anyGroup) {
		return nil, nil //nolint:nilnil // There is no room.
	}
	b := &start{}
	g.starts = append(g.starts, b)
	s.children++
	go g.start(b)
	return b, nil
}

func anyGroup(*group) bool { return true }

// heldLocked is how many processes are counted in a share.
func (s *Server) heldLocked(pays string) (held int) {
	for _, g := range s.groups {
		if g.pays == pays {
			held += len(g.workers) + len(g.starts)
		}
	}
	return held
}

// evictLocked ends the least recently used idle process among the groups that of accepts, if
// it has been idle for long enough. One of the group that needs room has been taken before.
func (s *Server) evictLocked(of func(*group) bool) bool {
	var oldest *worker
	for _, g := range s.groups {
		if !of(g) {
			continue
		}
		for _, w := range g.workers {
			if !w.usedLocked() && (oldest == nil || w.touched.Before(oldest.touched)) {
				oldest = w
			}
		}
	}
	if oldest == nil {
		return false
	}
	if left := s.options.Limits.EvictIdle - time.Since(oldest.touched); left > 0 {
		s.wakeIn(left)
		return false
	}
	s.metrics.Evictions.Inc()
	oldest.dismissLocked(errEvicted)
	return true
}

// wakeIn has those who wait for a process look again after some time.
func (s *Server) wakeIn(after time.Duration) {
	if s.alarmed {
		return
	}
	s.alarmed = true
	time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.alarmed = false
		s.wakeLocked()
	})
}

// start is nobody's in particular, so that nobody's going away stops it.
func (g *group) start(b *start) {
	s := g.server
	ctx, cancel := context.WithTimeout(s.ctx, s.options.Limits.StartTimeout)
	defer cancel()
	w, err := g.launch(ctx)
	s.mu.Lock()
	b.over = true
	g.starts = slices.DeleteFunc(g.starts, func(other *start) bool { return other == b })
	if err == nil && w.DeadLocked() != nil {
		err = w.DeadLocked() // while nobody looked
	}
	if err == nil && s.closed {
		err = fault.ErrDraining
	}
	if err == nil {
		delete(s.backOffs, g.shares)
		s.metrics.Starts.Inc()
		g.workers = append(g.workers, w)
		w.listed = true
		w.beIdleLocked()
	} else {
		s.children--
		b.err = fault.ForClients(err)
		s.startFailedLocked(g.shares, err)
	}
	g.tidyLocked()
	s.wakeLocked()
	s.mu.Unlock()
	if err != nil && w != nil {
		w.fail(err)
	}
}

// wakeLocked has those who wait for a process look again.
func (s *Server) wakeLocked() {
	if s.waiters > 0 {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}
