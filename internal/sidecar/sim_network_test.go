package sidecar

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// simNet is a network in memory, as programs see one through TCP: bytes take time, wait while a link is cut, and arrive in order;
// connections are refused where nothing listens, and get no answer where nothing is.
type simNet struct {
	mu        sync.Mutex
	random    *rand.Rand
	hosts     map[netip.Addr]*simHost
	cuts      map[[2]*simHost]bool
	listeners map[netip.AddrPort]*simListener
	conns     map[*simConn]struct{}
	changed   chan struct{} // closed when a link or a host changes
	slow      time.Duration // more latency, for a while
	lastPort  uint16
	spells    []*spell
	dialed    func(from *simHost, to netip.AddrPort)
}

// simHost is a pod, a client or the manager, as the network knows it.
type simHost struct {
	name    string
	address netip.Addr
	dead    bool // nothing comes from it and nothing gets there: its node is lost
}

const (
	simLatency    = 2 * time.Millisecond // most of one way, without loss
	simLoss       = 200                  // one write in so many is sent again
	simRetransmit = 300 * time.Millisecond
	simWindow     = 256 << 10
	// simNoRoute is when a kernel gives an address up that nothing answers for.
	simNoRoute = 3 * time.Second
)

func newSimNet(random *rand.Rand) *simNet {
	return &simNet{
		random: random, hosts: map[netip.Addr]*simHost{}, cuts: map[[2]*simHost]bool{}, listeners: map[netip.AddrPort]*simListener{},
		conns: map[*simConn]struct{}{}, changed: make(chan struct{}), lastPort: 20000,
	}
}

func (n *simNet) attach(name string, address netip.Addr) *simHost {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &simHost{name: name, address: address}
	n.hosts[address] = h
	return h
}

// detach takes a host away without telling another host. A new host can get its address at once.
func (n *simNet) detach(h *simHost) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !h.dead {
		n.recordLocked(h, nil, true)
	}
	h.dead = true
	if n.hosts[h.address] == h {
		delete(n.hosts, h.address)
	}
	n.changeLocked()
}

// spell is a time in which nothing passed. It lasts while its end is zero.
type spell struct {
	a, b       *simHost // b is nil for a host that no other host can reach
	begin, end time.Time
}

// setSlow makes everything take longer.
func (n *simNet) setSlow(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow = d
}

// recordLocked writes down when nothing passes.
func (n *simNet) recordLocked(a, b *simHost, blocked bool) {
	if blocked {
		n.spells = append(n.spells, &spell{a: a, b: b, begin: time.Now()})
		return
	}
	for _, s := range n.spells {
		if s.end.IsZero() && (s.a == a && s.b == b || s.a == b && s.b == a) {
			s.end = time.Now()
		}
	}
}

// blockedFor is for how much of the last while nothing passed between two hosts.
func (n *simNet) blockedFor(a, b *simHost, last time.Duration) (sum time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for _, s := range n.spells {
		switch {
		case s.b == nil && s.a != a && s.a != b, s.b != nil && (s.a != a || s.b != b) && (s.a != b || s.b != a):
			continue
		}
		begin, end := s.begin, s.end
		if end.IsZero() {
			end = now
		}
		if before := now.Add(-last); begin.Before(before) {
			begin = before
		}
		sum += max(0, end.Sub(begin))
	}
	return sum
}

// wasLost reports whether no other host could reach a host at some time in the last while.
func (n *simNet) wasLost(h *simHost, last time.Duration) bool { return n.blockedFor(h, nil, last) > 0 }

// setDead loses the node of a host, or brings it back.
func (n *simNet) setDead(h *simHost, dead bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.dead != dead {
		n.recordLocked(h, nil, dead)
	}
	h.dead = dead
	n.changeLocked()
}

// setCut cuts the way between two hosts, or mends it.
func (n *simNet) setCut(a, b *simHost, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.recordLocked(a, b, cut)
	delete(n.cuts, [2]*simHost{a, b})
	delete(n.cuts, [2]*simHost{b, a})
	if cut {
		n.cuts[[2]*simHost{a, b}] = true
	}
	n.changeLocked()
}

// changeLocked has all who wait look again. What was lost on the way comes a moment after the way is there again.
func (n *simNet) changeLocked() {
	for c := range n.conns {
		blocked := n.blockedLocked(c.local, c.peer.local)
		if c.stalled && !blocked {
			c.delayLocked(time.Now().Add(time.Duration(n.random.Int64N(int64(2 * simRetransmit)))))
		}
		c.stalled = blocked
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *simNet) blockedLocked(a, b *simHost) bool {
	return a.dead || b.dead || n.cuts[[2]*simHost{a, b}] || n.cuts[[2]*simHost{b, a}]
}

func (n *simNet) blocked(a, b *simHost) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.blockedLocked(a, b)
}

// pick is a random number below a bound.
func (n *simNet) pick(below int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.random.IntN(below)
}

// delayLocked is the time of one way.
func (n *simNet) delayLocked() time.Duration {
	d := time.Duration(n.random.Int64N(int64(simLatency))) + n.slow
	if n.random.IntN(simLoss) == 0 {
		d += simRetransmit
	}
	return d
}

// simListener is a port of a host.
type simListener struct {
	net     *simNet
	host    *simHost
	address netip.AddrPort
	backlog chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (n *simNet) listen(h *simHost, port uint16) *simListener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &simListener{net: n, host: h, address: netip.AddrPortFrom(h.address, port), backlog: make(chan net.Conn, 1024), closed: make(chan struct{})}
	n.listeners[l.address] = l
	return l
}

// Accept implements net.Listener.
func (l *simListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *simListener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		if l.net.listeners[l.address] == l {
			delete(l.net.listeners, l.address)
		}
		l.net.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.backlog:
				_ = c.Close()
			default:
				return
			}
		}
	})
	return nil
}

// Addr implements net.Listener.
func (l *simListener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.address) }

// dial connects one host to an address.
func (n *simNet) dial(ctx context.Context, from *simHost, to netip.AddrPort) (net.Conn, error) {
	if n.dialed != nil {
		n.dialed(from, to)
	}
	began := time.Now()
	for {
		n.mu.Lock()
		at, changed := n.hosts[to.Addr()], n.changed
		if at == nil && time.Since(began) >= simNoRoute {
			n.mu.Unlock()
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}
		}
		if at != nil && !n.blockedLocked(from, at) {
			delay := n.delayLocked() + n.delayLocked()
			n.mu.Unlock()
			if err := sleepIn(ctx, delay); err != nil {
				return nil, err
			}
			return n.connect(from, at, to)
		}
		n.mu.Unlock()
		select {
		case <-changed: // the next SYN may get through
			if err := sleepIn(ctx, simRetransmit); err != nil {
				return nil, err
			}
		case <-time.After(simNoRoute):
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
		}
	}
}

func sleepIn(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
	}
}

func (n *simNet) connect(from, at *simHost, to netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[to]
	if l == nil || l.host != at {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	n.lastPort++
	near := &simConn{net: n, local: from, from: netip.AddrPortFrom(from.address, n.lastPort), to: to, wake: make(chan struct{})}
	far := &simConn{net: n, local: at, from: to, to: near.from, wake: make(chan struct{}), peer: near}
	near.peer = far
	select {
	case l.backlog <- far:
	default:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("the backlog is full")}
	}
	n.conns[near], n.conns[far] = struct{}{}, struct{}{}
	return near, nil
}

// closeAll ends what a host has open, as its kernel does for a program that has ended.
func (n *simNet) closeAll(h *simHost) {
	n.mu.Lock()
	var closing []interface{ Close() error }
	for c := range n.conns {
		if c.local == h {
			closing = append(closing, c)
		}
	}
	for _, l := range n.listeners {
		if l.host == h {
			closing = append(closing, l)
		}
	}
	n.mu.Unlock()
	for _, c := range closing {
		_ = c.Close()
	}
}
