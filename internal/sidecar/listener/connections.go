package listener

import (
	"cmp"
	"net"
	"net/http"
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

	checked          atomic.Int64 // when deadlines were last enforced, in nanoseconds
	refused, evicted atomic.Uint64

	mu        sync.Mutex
	open      map[*conn]struct{}
	byAddress map[string]int // open connections
}

// defaultMinIdle is long enough for a request that the client sends at the same moment to
// arrive before the eviction.
const defaultMinIdle = 5 * time.Second

func newConnections(limit int) *connections {
	l := &connections{limit: limit, minIdle: defaultMinIdle, open: map[*conn]struct{}{}, byAddress: map[string]int{}}
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
	case victim != nil && !victim.is(http.StateActive): // if a request has just arrived, the limit is exceeded by one for now
		l.evicted.Add(1)
		_ = victim.Close()
	}
	return admitted
}

// victimLocked is the connection to evict, or nil: one of the address that has most, or else
// one of any address.
func (l *connections) victimLocked() *conn {
	busiest := ""
	for address, count := range l.byAddress {
		if count > l.byAddress[busiest] {
			busiest = address
		}
	}
	if c := l.victimAmongLocked(func(c *conn) bool { return c.address == busiest }); c != nil {
		return c
	}
	return l.victimAmongLocked(func(*conn) bool { return true })
}

func (l *connections) victimAmongLocked(may func(*conn) bool) *conn {
	var unused, idle *conn
	now := time.Now()
	unusedSince, idleSince := now.UnixNano(), now.Add(-l.minIdle).UnixNano()
	for c := range l.open {
		switch since := c.idleSince.Load(); {
		case !may(c):
		case c.is(http.StateNew) && since < unusedSince:
			unused, unusedSince = c, since
		case c.is(http.StateIdle) && since < idleSince:
			idle, idleSince = c, since
		}
	}
	return cmp.Or(unused, idle)
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

func (l *connections) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

func (c *conn) is(state http.ConnState) bool { return http.ConnState(c.state.Load()) == state }

// recordState is the ConnState of an http.Server, which calls it twice for each request.
func recordState(of net.Conn, state http.ConnState) {
	c, ok := of.(*conn)
	if !ok {
		return
	}
	if state == http.StateIdle {
		c.idleSince.Store(c.conns.checked.Load()) // to a second, and without a call of time.Now
	}
	c.state.Store(int32(state)) //nolint:gosec // there are five
}

// refuse tells a client that there is no room, and closes the connection. The client may not
// have sent a request yet.
func refuse(tcp *net.TCPConn) {
	_ = tcp.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = tcp.Write([]byte("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 47\r\n\r\n" +
		"too many connections are open; try again later\n"))
	_ = tcp.Close()
}
