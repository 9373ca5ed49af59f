package launcher

import (
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	sweepPauseMin = time.Millisecond
	sweepPauseMax = 50 * time.Millisecond

	// cleanSweeps is how many looks in a row must find nothing. During one look a
	// parent may die after its child, not yet ours, has been passed over.
	cleanSweeps = 2

	// doubtLimit is how long after its end a session is taken to be there still
	// because of a process that cannot be read. A process in mid-exit has no
	// environment and has not handed its children on yet; one that was started
	// without an environment looks the same for ever.
	doubtLimit = 2 * time.Second
)

// sweeper kills what has left the group of a dead session, until nothing is left.
// One look at /proc serves all sessions that ended in the meantime.
type sweeper struct {
	super *supervisor
	wake  chan struct{}
	self  int

	mu   sync.Mutex
	dead map[*child]int // how often nothing of it was found
}

func newSweeper(super *supervisor) *sweeper {
	return &sweeper{super: super, wake: make(chan struct{}, 1), self: os.Getpid(), dead: map[*child]int{}}
}

func (s *sweeper) add(c *child) {
	s.mu.Lock()
	s.dead[c] = 0
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sweeper) loop() {
	for {
		select {
		case <-s.wake:
		case <-s.super.stop:
			return
		}
		for pause := sweepPauseMin; !s.sweep(); pause = min(2*pause, sweepPauseMax) {
			select {
			case <-time.After(pause):
			case <-s.super.stop:
				return
			}
		}
	}
}

// sweep looks once, kills what it finds and says whether all is clean.
func (s *sweeper) sweep() bool {
	marks, groups := s.wanted()
	found := map[*child]bool{}
	pids, err := processes()
	doubt := err != nil
	for _, pid := range pids {
		c, known := s.inspect(pid, marks, groups)
		found[c] = true
		doubt = doubt || !known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range marks {
		s.dead[c]++
		if found[c] || doubt && time.Since(c.died) < doubtLimit {
			s.dead[c] = 0
		}
		if s.dead[c] == cleanSweeps {
			delete(s.dead, c)
			close(c.gone)
		}
	}
	return len(s.dead) == 0
}

// wanted is what to look for, fixed before the look: a session that ends during
// it has not been looked for.
func (s *sweeper) wanted() (marks map[string]*child, groups map[int]*child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	marks, groups = make(map[string]*child, len(s.dead)), make(map[int]*child, len(s.dead))
	for c := range s.dead {
		marks[c.mark], groups[c.pid] = c, c
	}
	return marks, groups
}

// inspect returns the dead session that a living process belongs to, and kills
// the process unless the group has been killed already. It is not known whose the
// process is when that cannot be read: it may be about to leave us its children.
func (s *sweeper) inspect(pid int, marks map[string]*child, groups map[int]*child) (c *child, known bool) {
	if pid == s.self || s.super.child(pid) != nil {
		return nil, true
	}
	stat, ok := readStat(pid)
	if !ok || stat.dead {
		return nil, ok
	}
	if c := s.inGroup(stat, groups); c != nil {
		return c, true
	}
	// A subreaper is handed every orphan in time, so its own children will do.
	if s.super.adopts && stat.parent != s.self {
		return nil, true
	}
	// The handle is taken before the environment is read, so that both are of the
	// same process.
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil, true
	}
	defer func() { _ = process.Release() }()
	mark, known := readMark(stat)
	if c = marks[mark]; c != nil {
		_ = process.Kill()
	}
	return c, known || !s.super.adopts
}

// inGroup returns the dead session whose group a process is in and about to
// leave. A living leader of the same number means that the number is new.
func (s *sweeper) inGroup(stat procStat, groups map[int]*child) *child {
	c := groups[stat.group]
	if c == nil || s.super.child(stat.group) != nil {
		return nil
	}
	return c
}

// pending are the dead sessions of which something may be left.
func (s *sweeper) pending() []*child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.dead))
}
