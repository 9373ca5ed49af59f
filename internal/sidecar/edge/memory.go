package edge

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Memory bounds each body, and all bodies together. A body takes the bytes of its buffer as
// the buffer grows. When there is no room, a slow body gives way: the oldest one of the client
// address that holds most. If no body can give way, Memory refuses the request.
type Memory struct {
	limits BodyLimits
	bytes  *budget.Budget

	mu     sync.Mutex
	shares map[string]share // of slow bodies, by the address of their client
	freed  chan struct{}    // closed when a slow body has given its bytes back

	refused, evicted session.Counter
}

// share is what one client address holds in slow bodies.
type share struct {
	bytes  int64
	bodies []*Request // oldest first
}

// held is the part of a Memory that the body of a request holds.
type held struct {
	bytes   int64
	key     string // of its share
	slow    bool   // it is part of the share
	evicted bool   // it has to give way
}

// NewMemory returns a Memory.
func NewMemory(limits BodyLimits, bytes *budget.Budget) *Memory {
	m := &Memory{limits: limits, bytes: bytes, shares: map[string]share{}, freed: make(chan struct{})}
	bytes.OnPress(m.giveWay)
	return m
}

// giveWay makes one slow body give way to a message of a server.
func (m *Memory) giveWay() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evictLocked(nil)
}

const (
	// slowAfter is how long a body may take to arrive before it has to give way.
	slowAfter = time.Second
	// giveWay is how long a request waits for slow bodies to give way.
	giveWay = time.Second
	// memoryRetry is the number of seconds after which a refused client should try again.
	// By then slow bodies have given way.
	memoryRetry = "2"
)

// Grow takes room for more of a body. The Door calls it before it makes its buffer larger.
func (m *Memory) Grow(r *Request, bytes int) *Refusal {
	if !m.take(r, int64(bytes)) && !m.makeRoom(r, int64(bytes)) {
		m.refused.Inc()
		return noRoom("the adapter holds as many bytes of request bodies as it may, which are " + strconv.FormatInt(m.bytes.Limit(), 10))
	}
	r.held.bytes += int64(bytes)
	if r.held.slow {
		m.mu.Lock()
		s := m.shares[r.held.key]
		m.shares[r.held.key] = share{s.bytes + int64(bytes), s.bodies}
		m.mu.Unlock()
	}
	return nil
}

func noRoom(text string) *Refusal {
	return &Refusal{Status: http.StatusServiceUnavailable, Code: rpc.CodeInternal, Text: text, Header: http.Header{"Retry-After": {memoryRetry}}}
}

// take takes room for a growing body. Large bodies leave some room to small ones.
func (m *Memory) take(r *Request, bytes int64) bool {
	if r.held.bytes+bytes > pieceBytes {
		return m.bytes.TakeLarge(bytes)
	}
	return m.bytes.Take(bytes)
}

// makeRoom makes slow bodies give way until there is room. It reports whether it took room.
func (m *Memory) makeRoom(r *Request, bytes int64) bool {
	timeout := time.NewTimer(giveWay)
	defer timeout.Stop()
	for {
		m.mu.Lock()
		freed := m.freed
		taken := m.take(r, bytes)
		evicting := !taken && m.evictLocked(r)
		m.mu.Unlock()
		switch {
		case taken:
			return true
		case !evicting:
			m.bytes.Press() // for the next request
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

// evictLocked makes a slow body of another request give way, and reports whether there is
// one.
func (m *Memory) evictLocked(but *Request) bool {
	var most share
	for _, s := range m.shares {
		if s.bytes > most.bytes {
			most = s
		}
	}
	oldest := slices.IndexFunc(most.bodies, func(r *Request) bool { return r != but })
	if oldest < 0 || time.Since(most.bodies[oldest].Record.began) < slowAfter {
		return false
	}
	victim := most.bodies[oldest]
	if !victim.held.evicted {
		victim.held.evicted = true
		m.evicted.Inc()
		// The goroutine that reads the body may set a later deadline. It checks
		// afterwards whether its body is evicted.
		_ = http.NewResponseController(&victim.writer).SetReadDeadline(time.Unix(1, 0))
	}
	return true
}

// Slow adds a body to the slow ones. The Door calls it whenever it waits for more of a body.
// It returns false if the body has to give way.
func (m *Memory) Slow(r *Request) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !r.held.slow {
		key := r.Caller.ShareKey()
		s := m.shares[key]
		m.shares[key] = share{s.bytes + r.held.bytes, append(s.bodies, r)}
		r.held.slow, r.held.key = true, key
	}
	return !r.held.evicted
}

// Filled takes a body out of the slow ones. The Door calls it when it has read the whole body,
// which does not give way from then on.
func (m *Memory) Filled(r *Request) {
	if !r.held.slow {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r.held.slow = false
	s := m.shares[r.held.key]
	if len(s.bodies) == 1 {
		delete(m.shares, r.held.key)
		return
	}
	at := slices.Index(s.bodies, r)
	m.shares[r.held.key] = share{s.bytes - r.held.bytes, slices.Delete(s.bodies, at, at+1)}
}

// Release gives the bytes of a body back. The Door calls it once, when the front end drops the
// body or the request ends.
func (m *Memory) Release(r *Request) {
	slow := r.held.slow
	m.Filled(r)
	m.bytes.Give(r.held.bytes)
	r.held.bytes = 0
	if slow {
		m.mu.Lock()
		close(m.freed)
		m.freed = make(chan struct{})
		m.mu.Unlock()
	}
}

// Refused returns how many requests found no room.
func (m *Memory) Refused() uint64 { return m.refused.Value() }

// Evicted returns how many bodies gave way.
func (m *Memory) Evicted() uint64 { return m.evicted.Value() }
