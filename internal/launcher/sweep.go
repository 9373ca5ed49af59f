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

	// cleanSweeps is how many looks in a row must find nothing. During one look, a parent
	// may die after the sweeper has passed over its child.
	cleanSweeps = 2

	// doubtLimit is how long after the end of a session the sweeper waits for processes
	// that it cannot read. A process in mid-exit has no environment, and still has its
	// children. A process that has started without an environment always looks the
	// same.
	doubtLimit = 2 * time.Second
)

// sweeper kills processes that have left the group of a dead session, until none is left.
// One look at /proc serves all sessions that have ended meanwhile.
type sweeper struct {
	super *supervisor
	wake  chan struct{}
	self  int

	mu   sync.Mutex
	dead map[*child]int // how many looks in a row have found nothing of it
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

// sweep looks at /proc once, kills what it finds, and says whether no session is left.
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

// wanted returns the sessions to look for. It runs before the look, because a look has
// not covered a session that ends during it.
func (s *sweeper) wanted() (marks map[string]*child, groups map[int]*child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	marks, groups = make(map[string]*child, len(s.dead)), make(map[int]*child, len(s.dead))
	for c := range s.dead {
		marks[c.mark], groups[c.pid] = c, c
	}
	return marks, groups
}

// inspect returns the dead session of a living process, and kills the process unless bury
// has killed its group. known is false if inspect cannot read the process, which may be
// about to leave its children to the launcher.
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
	// A subreaper becomes the parent of every orphan in time, so that it need look at its
	// own children only.
	if s.super.adopts && stat.parent != s.self {
		return nil, true
	}
	// inspect takes the handle before it reads the environment, so that both are of the
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

// inGroup returns the dead session whose group a process is in and about to leave. If a
// living leader has the number, the kernel has given it to a new group.
func (s *sweeper) inGroup(stat procStat, groups map[int]*child) *child {
	c := groups[stat.group]
	if c == nil || s.super.child(stat.group) != nil {
		return nil
	}
	return c
}

// pending returns the dead sessions that may have processes left.
func (s *sweeper) pending() []*child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.dead))
}
