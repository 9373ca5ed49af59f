package relay

import (
	"context"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// pod is what the relay knows of one pod. The mutex of the Relay guards it.
type pod struct {
	owner    sessionid.Owner
	inFlight int // requests, with those that wait for a connection
	streams  int // those among them whose answer is a stream without an end
	held     map[string]places
	queue    []*queued // requests without a place, the oldest first
	lastUsed time.Time // when a request was last in flight
	heard    time.Time // when the pod last gave a whole answer

	open    map[*conn]struct{} // connections for requests
	idle    []*conn            // those without a request, the one used last at the end
	waiting []*waiter          // requests without a connection, the oldest first
	dialing bool               // for those that wait

	ping ping
}

// waiter is a request that waits for a connection.
type waiter struct {
	fresh bool // it takes none that had a request before
	got   chan handed
}

type handed struct {
	conn  *conn
	fresh bool // it was dialed just now
	err   error
}

// take returns a connection for a request: one that had requests before, or a new one.
func (r *Relay) take(ctx context.Context, p *pod, request *Request, fresh bool) (*conn, error) {
	for {
		got := r.idleOrNew(ctx, p, request, fresh)
		switch {
		case got.err != nil:
			return nil, got.err
		case got.fresh || !got.conn.isStale():
			return got.conn, nil
		}
		r.drop(p, got.conn)
	}
}

func (r *Relay) idleOrNew(ctx context.Context, p *pod, request *Request, fresh bool) handed {
	r.mu.Lock()
	if !fresh {
		if c := r.idleLocked(p); c != nil {
			r.mu.Unlock()
			return handed{conn: c}
		}
	}
	w := &waiter{fresh: fresh, got: make(chan handed, 1)}
	p.waiting = append(p.waiting, w)
	if !p.dialing {
		p.dialing = true
		go r.dialForWaiting(p)
	}
	r.mu.Unlock()
	return r.await(ctx, p, w, request.ConnectTimeout)
}

// await waits for a connection that was asked for.
func (r *Relay) await(ctx context.Context, p *pod, w *waiter, timeout time.Duration) handed {
	patient := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		patient, cancel = within(ctx, timeout)
		defer cancel()
	}
	select {
	case got := <-w.got:
		return got
	case <-patient.Done():
	}
	r.abandon(p, w)
	if ctx.Err() == nil {
		return handed{err: &DialError{Outcome: Late, Err: context.Cause(patient)}}
	}
	return handed{err: left(ctx)}
}

// idleLocked takes a connection without a request, or returns nil. It leaves none that the pod may close at any
// moment: a call that is under way then would be lost.
func (r *Relay) idleLocked(p *pod) *conn {
	for last := len(p.idle) - 1; last >= 0; last-- {
		c := p.idle[last]
		p.idle[last], p.idle = nil, p.idle[:last]
		life := r.options.IdleTimeout
		if !c.used {
			life = r.options.UnusedTimeout
		}
		if time.Since(c.idleSince) < life {
			return c
		}
		delete(p.open, c)
		c.close()
	}
	return nil
}

// abandon takes a request out of those that wait. A connection that it has got meanwhile is for others.
func (r *Relay) abandon(p *pod, w *waiter) {
	r.mu.Lock()
	p.waiting = slices.DeleteFunc(p.waiting, func(other *waiter) bool { return other == w })
	r.mu.Unlock()
	select {
	case got := <-w.got:
		if got.conn != nil {
			r.put(p, got.conn)
		}
	default:
	}
}

// dialForWaiting makes one connection after the other for the requests that wait. When it fails, all of
// them fail: a second attempt would take as long.
func (r *Relay) dialForWaiting(p *pod) {
	for more := true; more; {
		c, err := r.dial(r.over, p.owner)
		r.mu.Lock()
		if err != nil {
			for _, w := range p.waiting {
				w.got <- handed{err: err}
			}
			p.waiting = nil
		} else {
			p.open[c] = struct{}{}
			r.handLocked(p, c, true)
		}
		more = len(p.waiting) > 0
		p.dialing = more
		r.forgetIfOverLocked(p)
		r.mu.Unlock()
	}
}

// put gives a connection to a request that waits, or keeps it for one that comes.
func (r *Relay) put(p *pod, c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.heard = time.Now()
	r.handLocked(p, c, false)
}

func (r *Relay) handLocked(p *pod, c *conn, fresh bool) {
	takes := func(w *waiter) bool { return fresh || !w.fresh }
	if i := slices.IndexFunc(p.waiting, takes); i >= 0 && !c.isClosed() {
		w := p.waiting[i]
		p.waiting = slices.Delete(p.waiting, i, i+1)
		w.got <- handed{conn: c, fresh: fresh}
		return
	}
	if c.isClosed() || len(p.idle) >= r.options.Idle || r.over.Err() != nil {
		delete(p.open, c)
		c.close()
		return
	}
	c.idleSince = time.Now()
	p.idle = append(p.idle, c)
}

// drop closes a connection that is of no more use.
func (r *Relay) drop(p *pod, c *conn) {
	c.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(p.open, c)
}

// dropAllLocked closes all connections to a pod. Requests in flight on them fail.
func (r *Relay) dropAllLocked(p *pod) {
	for c := range p.open {
		c.lost.Store(true)
		c.abort()
	}
	clear(p.open)
	clear(p.idle)
	p.idle = p.idle[:0]
}

// sweepsPerTimeout says how late connections without requests are closed: by one part in so many.
const sweepsPerTimeout = 4

func (r *Relay) armSweepLocked() {
	switch interval := r.options.IdleTimeout / sweepsPerTimeout; {
	case r.sweep == nil:
		r.sweep = time.AfterFunc(interval, r.sweepPods)
	case len(r.pods) == 1: // the timer does not run without pods
		r.sweep.Reset(interval)
	}
}

// sweepPods closes connections that had no request for long, and forgets pods that had none for longer.
func (r *Relay) sweepPods() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, p := range r.pods {
		r.closeIdleLocked(p, now.Add(-r.options.IdleTimeout))
		if p.inFlight == 0 && now.Sub(p.lastUsed) >= r.options.PodTimeout {
			r.forgetIfUnusedLocked(p)
		}
	}
	if len(r.pods) > 0 && r.over.Err() == nil {
		r.sweep.Reset(r.options.IdleTimeout / sweepsPerTimeout)
	}
}

// closeIdleLocked closes the connections that had no request since then.
func (r *Relay) closeIdleLocked(p *pod, since time.Time) {
	for i, c := range p.idle {
		if c.idleSince.After(since) {
			p.idle = slices.Delete(p.idle, 0, i)
			return
		}
		delete(p.open, c)
		c.close()
	}
	clear(p.idle)
	p.idle = p.idle[:0]
}

// forgetIfUnusedLocked forgets a pod, if no goroutine has to do with it.
func (r *Relay) forgetIfUnusedLocked(p *pod) bool {
	if p.inFlight > 0 || p.dialing || p.ping.stop != nil {
		return false
	}
	r.closeIdleLocked(p, time.Now())
	p.ping.end()
	delete(r.pods, p.owner)
	return true
}

// forgetIfOverLocked forgets a pod that was still in use when the relay was closed.
func (r *Relay) forgetIfOverLocked(p *pod) bool {
	return r.over.Err() != nil && r.forgetIfUnusedLocked(p)
}

// forgetOldestLocked makes room for another pod, and says whether there is.
func (r *Relay) forgetOldestLocked() bool {
	var oldest *pod
	for _, p := range r.pods {
		if p.inFlight == 0 && !p.dialing && p.ping.stop == nil && (oldest == nil || p.lastUsed.Before(oldest.lastUsed)) {
			oldest = p
		}
	}
	return oldest != nil && r.forgetIfUnusedLocked(oldest)
}
