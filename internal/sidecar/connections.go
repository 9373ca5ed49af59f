package sidecar

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// crowd bounds the connections of a listener. Each costs memory, though its client says
// nothing. When there are too many, one makes room that its client loses little by: one that
// no request has come on, the oldest of these, or else the one that waits longest for the next
// request. Connections with a request in flight stay.
type crowd struct {
	most  int
	fresh []*patientConn // in the order in which they came; some have sent something since

	refused, evicted atomic.Uint64
}

// leastQuiet is how long a connection has been between two requests when it may make room:
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
		l.fresh = append(l.fresh, c)
		l.tidyLocked()
	}
	l.mu.Unlock()
	switch {
	case victim != nil:
		l.evicted.Add(1)
		_ = victim.Close()
	case full:
		l.refused.Add(1)
		return false
	}
	return true
}

// chooseLocked is the connection that makes room, or nil.
func (l *patientListener) chooseLocked() *patientConn {
	for len(l.fresh) > 0 {
		oldest := l.fresh[0]
		l.fresh[0] = nil
		l.fresh = l.fresh[1:]
		if l.isFreshLocked(oldest) {
			return oldest
		}
	}
	var longest *patientConn
	before := time.Now().Add(-leastQuiet).UnixNano()
	for c := range l.conns {
		if since := c.idle.Load(); http.ConnState(c.state.Load()) == http.StateIdle && since < before {
			longest, before = c, since
		}
	}
	return longest
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
