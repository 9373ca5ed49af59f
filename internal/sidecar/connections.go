package sidecar

import (
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// crowd bounds the connections of a listener. Each costs memory, though its client says
// nothing. At the limit, the listener closes one for a new one: of the address that has most,
// the oldest that has sent no request, or else the one that has waited longest for its next
// request. A connection with a request in flight stays. A request is in flight once all of
// its header is there.
type crowd struct {
	most  int
	quiet time.Duration  // see leastQuiet
	from  map[string]int // connections by address
	fresh []*patientConn // in the order in which they came; some have sent a request since

	refused, evicted atomic.Uint64
}

// leastQuiet is how long a connection has been between two requests before it may make room:
// its client may just be sending the next.
const leastQuiet = 5 * time.Second

// admit takes a connection in, and says whether there is room for it.
func (l *patientListener) admit(c *patientConn) bool {
	l.mu.Lock()
	var victim *patientConn
	full := len(l.conns) >= l.most
	if full {
		victim = l.chooseLocked()
	}
	if !full || victim != nil {
		l.conns[c] = struct{}{}
		l.from[c.address]++
		l.fresh = append(l.fresh, c)
		l.tidyLocked()
	}
	l.mu.Unlock()
	switch {
	case victim != nil && victim.isActive(): // in this moment; there is one too many for now
	case victim != nil:
		l.evicted.Add(1)
		_ = victim.Close()
	case full:
		l.refused.Add(1)
		return false
	}
	return true
}

// chooseLocked is the connection that makes room, or nil: one of the address that has most,
// or one of any.
func (l *patientListener) chooseLocked() *patientConn {
	crowded := l.crowdedLocked()
	if c := l.chooseOfLocked(func(c *patientConn) bool { return c.address == crowded }); c != nil {
		return c
	}
	return l.chooseOfLocked(func(*patientConn) bool { return true })
}

func (l *patientListener) chooseOfLocked(may func(*patientConn) bool) *patientConn {
	for i, c := range l.fresh {
		if may(c) && l.isFreshLocked(c) {
			l.fresh = slices.Delete(l.fresh, i, i+1)
			return c
		}
	}
	var longest *patientConn
	before := time.Now().Add(-l.quiet).UnixNano()
	for c := range l.conns {
		if since := c.idle.Load(); may(c) && http.ConnState(c.state.Load()) == http.StateIdle && since < before {
			longest, before = c, since
		}
	}
	return longest
}

// crowdedLocked is the address that has most connections.
func (l *patientListener) crowdedLocked() (crowded string) {
	for address, count := range l.from {
		if count > l.from[crowded] {
			crowded = address
		}
	}
	return crowded
}

// forget notes that a connection is closed.
func (l *patientListener) forget(c *patientConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.conns[c]; !open {
		return
	}
	delete(l.conns, c)
	if l.from[c.address]--; l.from[c.address] == 0 {
		delete(l.from, c.address)
	}
}

// tidyLocked keeps the list of connections that no request has come on from growing with
// those that one has.
func (l *patientListener) tidyLocked() {
	if len(l.fresh) <= 2*len(l.conns)+64 {
		return
	}
	kept := make([]*patientConn, 0, len(l.conns))
	for _, c := range l.fresh {
		if l.isFreshLocked(c) {
			kept = append(kept, c)
		}
	}
	l.fresh = kept
}

func (l *patientListener) isFreshLocked(c *patientConn) bool {
	_, open := l.conns[c]
	return open && http.ConnState(c.state.Load()) == http.StateNew
}

func (c *patientConn) isActive() bool { return http.ConnState(c.state.Load()) == http.StateActive }

// What metrics say. A listener that is not there yet has no connections.

func (l *patientListener) refusals() uint64 {
	if l == nil {
		return 0
	}
	return l.refused.Load()
}

func (l *patientListener) evictions() uint64 {
	if l == nil {
		return 0
	}
	return l.evicted.Load()
}

func (l *patientListener) count() int {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// addressOf is the address of a client, as shares are counted.
func addressOf(conn *net.TCPConn) string {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return ""
	}
	return caller.ShareOf(host)
}

// noteState is the ConnState of servers. It is called twice for each request.
func noteState(conn net.Conn, state http.ConnState) {
	c, ok := conn.(*patientConn)
	if !ok {
		return
	}
	if state == http.StateIdle {
		c.idle.Store(c.listener.looked.Load()) // exact enough, and costs nothing
	}
	c.state.Store(int32(state)) //nolint:gosec // there are five
}

// refuseConnection tells a client, which may not have asked for anything yet, that there is
// no room.
func refuseConnection(conn *net.TCPConn) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 47\r\n\r\n" +
		"too many connections are open; try again later\n"))
	_ = conn.Close()
}
