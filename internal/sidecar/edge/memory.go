package edge

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Memory is the Budget of bodies that share one number of bytes. A body takes the bytes
// of its buffer, as the buffer grows. When there is no room, a slow body gives way: the
// oldest one of the client address that holds most. If none can, Memory refuses the
// request.
type Memory struct {
	limits BodyLimits
	bytes  *budget.Budget

	mu     sync.Mutex
	shares map[string]*share // of slow bodies, by the address of their client
	freed  chan struct{}     // closed when a slow body has given its bytes back

	refused, evicted session.Counter
}

// share is what one client address holds in slow bodies.
type share struct {
	key            string
	bytes          int64
	oldest, newest *Request
}

// held is what a request has of a Memory.
type held struct {
	bytes        int64
	share        *share // nil unless the body is slow
	older, newer *Request
	evicted      bool // the body has to give way
}

// NewMemory returns a Memory.
func NewMemory(limits BodyLimits, bytes *budget.Budget) *Memory {
	m := &Memory{limits: limits, bytes: bytes, shares: map[string]*share{}, freed: make(chan struct{})}
	bytes.OnPress(m.giveWay)
	return m
}

// giveWay has one slow body make room for what servers send.
func (m *Memory) giveWay() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evictLocked(nil)
}

const (
	// slowAfter is how long a body may take to arrive before it has to give way.
	slowAfter = time.Second
	// giveWay is how long a request waits for others to give way.
	giveWay = time.Second
	// memoryRetry is after how many seconds a refused client should try again. Slow
	// bodies have given way by then.
	memoryRetry = "2"
)

// Reserve refuses no request: a Content-Length alone takes no memory.
func (m *Memory) Reserve(*Request) (BodyLimits, *Refusal) { return m.limits, nil }

// Grow takes room for more of a body.
func (m *Memory) Grow(r *Request, bytes int) *Refusal {
	if m.take(r, int64(bytes)) {
		m.grown(r, int64(bytes))
		return nil
	}
	if m.makeRoom(r, int64(bytes)) {
		return nil
	}
	m.refused.Inc()
	return &Refusal{
		Status: http.StatusServiceUnavailable, Code: rpc.CodeInternal, Header: http.Header{"Retry-After": {memoryRetry}},
		Text: "the adapter holds as many bytes of request bodies as it may, which are " + strconv.FormatInt(m.bytes.Limit(), 10),
	}
}

// take takes room for a growing body. Large bodies leave some room to small ones.
func (m *Memory) take(r *Request, bytes int64) bool {
	if r.held.bytes+bytes > pieceBytes {
		return m.bytes.TakeLarge(bytes)
	}
	return m.bytes.Take(bytes)
}

func (m *Memory) grown(r *Request, bytes int64) {
	r.held.bytes += bytes
	if r.held.share != nil {
		m.mu.Lock()
		r.held.share.bytes += bytes
		m.mu.Unlock()
	}
}

// makeRoom has slow bodies give way until there is room.
func (m *Memory) makeRoom(r *Request, bytes int64) bool {
	timeout := time.NewTimer(giveWay)
	defer timeout.Stop()
	for {
		m.mu.Lock()
		freed := m.freed
		if m.take(r, bytes) {
			m.mu.Unlock()
			m.grown(r, bytes)
			return true
		}
		waiting := m.evictLocked(r)
		m.mu.Unlock()
		if !waiting {
			m.bytes.Press() // for the next one
			return false
		}
		select {
		case <-freed:
		case <-timeout.C:
			return false
		case <-r.Context().Done():
			return false
		}
	}
}

// evictLocked makes one slow body give way, other than that of the request, and says
// whether it found one.
func (m *Memory) evictLocked(but *Request) bool {
	var most *share
	for _, s := range m.shares {
		if most == nil || s.bytes > most.bytes {
			most = s
		}
	}
	if most == nil {
		return false
	}
	victim := most.oldest
	if victim == but {
		victim = victim.held.newer
	}
	if victim == nil || time.Since(victim.Record.began) < slowAfter {
		return false
	}
	if !victim.held.evicted {
		victim.held.evicted = true
		m.evicted.Inc()
		// The goroutine that reads the body may set a later deadline. It checks
		// afterwards whether its body is evicted.
		_ = http.NewResponseController(victim.writer).SetReadDeadline(time.Unix(1, 0))
	}
	return true
}

// Slow notes that a body is slow. It returns false if the body has to give way.
func (m *Memory) Slow(r *Request) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.held.share != nil {
		return !r.held.evicted
	}
	key := r.Caller.ShareKey()
	s := m.shares[key]
	if s == nil {
		s = &share{key: key}
		m.shares[key] = s
	}
	r.held.share, r.held.older = s, s.newest
	if s.newest != nil {
		s.newest.held.newer = r
	} else {
		s.oldest = r
	}
	s.newest = r
	s.bytes += r.held.bytes
	return true
}

// Filled notes that a body is whole. From then on it does not give way.
func (m *Memory) Filled(r *Request) {
	if r.held.share == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unlistLocked(r)
}

func (m *Memory) unlistLocked(r *Request) {
	h := &r.held
	s := h.share
	s.bytes -= h.bytes
	if h.older != nil {
		h.older.held.newer = h.newer
	} else {
		s.oldest = h.newer
	}
	if h.newer != nil {
		h.newer.held.older = h.older
	} else {
		s.newest = h.older
	}
	if s.oldest == nil {
		delete(m.shares, s.key)
	}
	h.share, h.older, h.newer = nil, nil, nil
}

// Release gives the bytes of the body back.
func (m *Memory) Release(r *Request) {
	slow := r.held.share != nil
	if slow {
		m.mu.Lock()
		m.unlistLocked(r)
		m.mu.Unlock()
	}
	m.bytes.Give(r.held.bytes)
	r.held.bytes = 0
	if slow {
		m.mu.Lock()
		close(m.freed)
		m.freed = make(chan struct{})
		m.mu.Unlock()
	}
}

// Refused is how many requests found no room.
func (m *Memory) Refused() uint64 { return m.refused.Value() }

// Evicted is how many bodies gave way.
func (m *Memory) Evicted() uint64 { return m.evicted.Value() }
