package listener

import (
	"cmp"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// connections are the open connections of a Server, up to a limit. Each costs memory even if
// its client sends nothing. At the limit, the Server evicts one for a new one. It prefers the
// address with the most connections. There it takes the oldest connection without any request
// so far, or else the one that has been idle longest. A connection with a request in flight
// stays. A request is in flight once all of its headers have arrived.
type connections struct {
	limit   int
	minIdle time.Duration // before an idle connection may be evicted
	pause   time.Duration // after a look through all connections that has found no victim

	checked          atomic.Int64 // when deadlines were last enforced, in nanoseconds
	refused, evicted atomic.Uint64

	mu         sync.Mutex
	open       map[*conn]struct{}
	byAddress  map[string]int // open connections
	victims    []*conn        // that are evicted next, the last one first, unless they get a request before
	nextLook   time.Time      // for victims
	candidates []candidate    // of the last look, without their connections
}

// defaultMinIdle is long enough for a request that the client sends at the same moment to
// arrive before the eviction.
const defaultMinIdle = 5 * time.Second

// defaultPause is short for a client that tries again, and long beside a look through all
// connections.
const defaultPause = 10 * time.Millisecond

func newConnections(limit int) *connections {
	l := &connections{limit: limit, minIdle: defaultMinIdle, pause: defaultPause, open: map[*conn]struct{}{}, byAddress: map[string]int{}}
	l.checked.Store(time.Now().UnixNano())
	return l
}

// admit adds a connection, and says whether there is room for it.
func (l *connections) admit(c *conn) bool {
	l.mu.Lock()
	var victim *conn
	full := len(l.open) >= l.limit
	if full {
		victim = l.victimLocked()
	}
	admitted := !full || victim != nil
	if admitted {
		l.open[c] = struct{}{}
		l.byAddress[c.address]++
		c.idleSince.Store(time.Now().UnixNano())
	}
	l.mu.Unlock()
	switch {
	case !admitted:
		l.refused.Add(1)
	case victim != nil:
		l.evicted.Add(1)
		victim.retire()   // if a request has just arrived, the limit is exceeded by one for now
		runtime.Gosched() // a client that opens one connection after the other waits for the requests of others
	}
	return admitted
}

// victimShare is which part of the limit one look through all connections chooses as the next
// victims: one in so many.
const victimShare = 32

// victimLocked is the connection to evict, or nil. A client can have the Server evict one for each
// connection that it opens, so the Server does not look through all connections each time.
func (l *connections) victimLocked() *conn {
	now := time.Now()
	if c := l.nextVictimLocked(now); c != nil || now.Before(l.nextLook) {
		return c
	}
	l.chooseVictimsLocked(now)
	c := l.nextVictimLocked(now)
	if c == nil {
		l.nextLook = now.Add(l.pause)
	}
	return c
}

// nextVictimLocked is the next of the chosen victims that has got no request meanwhile, or nil.
func (l *connections) nextVictimLocked(now time.Time) *conn {
	for len(l.victims) > 0 {
		last := len(l.victims) - 1
		c := l.victims[last]
		l.victims[last], l.victims = nil, l.victims[:last]
		if _, open := l.open[c]; open && l.mayEvict(c, now) && !c.hasByte() {
			return c
		}
	}
	return nil
}

func (l *connections) mayEvict(c *conn, now time.Time) bool {
	return !c.retired.Load() && (c.is(http.StateNew) || c.is(http.StateIdle) && c.idleSince.Load() < now.Add(-l.minIdle).UnixNano())
}

// candidate is a connection that may be evicted, with what decides when. Both can change
// while candidates are sorted.
type candidate struct {
	*conn
	idle  bool
	since int64
}

// chooseVictimsLocked chooses the next victims: of the address that has most connections, or else
// of any address.
func (l *connections) chooseVictimsLocked(now time.Time) {
	busiest := ""
	for address, count := range l.byAddress {
		if count > l.byAddress[busiest] {
			busiest = address
		}
	}
	l.chooseAmongLocked(now, func(c *conn) bool { return c.address == busiest })
	if len(l.victims) == 0 {
		l.chooseAmongLocked(now, func(*conn) bool { return true })
	}
}

func (l *connections) chooseAmongLocked(now time.Time, wanted func(*conn) bool) {
	l.collectLocked(now, wanted)
	slices.SortFunc(l.candidates, func(a, b candidate) int {
		switch {
		case a.idle == b.idle:
			return cmp.Compare(a.since, b.since)
		case a.idle:
			return 1
		default:
			return -1
		}
	})
	for _, c := range l.candidates {
		if len(l.victims) >= max(1, l.limit/victimShare) {
			break
		}
		if !c.hasByte() { // a request that no goroutine has read yet
			l.victims = append(l.victims, c.conn)
		}
	}
	slices.Reverse(l.victims)
	clear(l.candidates)
}

// collectLocked makes the connections that may be evicted, and that the caller wants, the
// candidates. It uses one slice again and again: a client can have the Server look often.
func (l *connections) collectLocked(now time.Time, wanted func(*conn) bool) {
	l.candidates = l.candidates[:0]
	for c := range l.open {
		if wanted(c) && l.mayEvict(c, now) {
			l.candidates = append(l.candidates, candidate{c, c.is(http.StateIdle), c.idleSince.Load()})
		}
	}
}

// remove forgets a connection that is closed.
func (l *connections) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.open[c]; !open {
		return
	}
	delete(l.open, c)
	if l.byAddress[c.address]--; l.byAddress[c.address] == 0 {
		delete(l.byAddress, c.address)
	}
}

// silent are the connections whose client has sent nothing so far.
func (l *connections) silent() (all []*conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.silent.Load() {
			all = append(all, c)
		}
	}
	return all
}

// retireUnused retires the connections without a request in flight. Those whose first request may be
// on its way have a little time. It returns how many are left, with those that are about to end.
func (l *connections) retireUnused(now time.Time) (left int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.is(http.StateActive) {
			continue
		}
		left++
		begins := c.is(http.StateNew) && !c.silent.Load() && c.idleSince.Load() > now.Add(-firstPatience).UnixNano()
		if !begins && !c.retired.Load() {
			c.retire()
		}
	}
	return left
}

func (l *connections) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

func (c *conn) is(state http.ConnState) bool { return http.ConnState(c.state.Load()) == state }

// recordState is the ConnState of an http.Server, which calls it twice for each request.
func recordState(of net.Conn, state http.ConnState) {
	c, ok := connOf(of)
	if !ok {
		return
	}
	if state == http.StateIdle {
		c.idleSince.Store(c.conns.checked.Load()) // to a second, and without a call of time.Now
	}
	c.state.Store(int32(state)) //nolint:gosec // there are five
	if state == http.StateActive && c.retired.Load() {
		c.revive()
	}
}

// connOf returns the connection of a Server that is below one of HTTP.
func connOf(of net.Conn) (*conn, bool) {
	if c, ok := of.(*conn); ok {
		return c, true
	}
	outer, ok := of.(interface{ NetConn() net.Conn })
	if !ok {
		return nil, false
	}
	c, ok := outer.NetConn().(*conn)
	return c, ok
}

// refuse answers 503 to a client when the server has no room for its connection. The client may not have sent a request yet.
func refuse(tcp *net.TCPConn) {
	_ = tcp.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = tcp.Write([]byte("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 47\r\n\r\n" +
		"too many connections are open; try again later\n"))
}
