package relay

import (
	"context"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// places are what one client has in flight to a pod.
type places struct{ requests, streams int }

// The port for clients bounds connections, and evicts none with a request in flight, so one client could have
// all places to a pod. The last fourth of them is for clients with less than an eighth.
const (
	reservedPart = 4
	smallPart    = 8
)

// isFull reports whether a client with so many of the places gets no other one.
func isFull(taken, own, limit int) bool {
	return taken >= limit || isScarce(taken, limit) && own >= max(1, limit/smallPart)
}

// isScarce reports whether the places that are left are for clients with few.
func isScarce(taken, limit int) bool { return taken >= limit-limit/reservedPart }

// queued is a request that waits for a place.
type queued struct {
	stream  bool
	client  string
	entered chan struct{} // closed when it has a place
}

// enter counts a request of a client. The error is a *DialError if a limit is reached and the request does not wait.
func (r *Relay) enter(ctx context.Context, to sessionid.Owner, request *Request, stream bool) (*pod, error) {
	r.mu.Lock()
	p := r.podLocked(to)
	switch {
	case p != nil && r.hasPlaceLocked(p, stream, request.Client):
		r.countInLocked(p, stream, request.Client)
		r.mu.Unlock()
		return p, nil
	case p == nil || request.Queue == nil:
		r.mu.Unlock()
		return nil, &DialError{Outcome: Busy, Err: errBusy}
	}
	q := &queued{stream: stream, client: request.Client, entered: make(chan struct{})}
	p.queue = append(p.queue, q)
	r.mu.Unlock()
	defer request.Queue()()
	select {
	case <-q.entered:
		return p, nil
	case <-ctx.Done():
		return nil, r.giveUp(ctx, p, q)
	}
}

// giveUp takes a request out of those that wait for a place. A place that it has got meanwhile is for others.
func (r *Relay) giveUp(ctx context.Context, p *pod, q *queued) error {
	r.mu.Lock()
	i := slices.Index(p.queue, q)
	if i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
	}
	r.mu.Unlock()
	if i < 0 {
		r.leave(p, q.stream, q.client)
	}
	return left(ctx)
}

// podLocked returns what is known of a pod, or nil if there are too many pods.
func (r *Relay) podLocked(to sessionid.Owner) *pod {
	p := r.pods[to]
	if p == nil && (len(r.pods) < r.options.Pods || r.forgetOldestLocked()) {
		p = &pod{owner: to, open: map[*conn]struct{}{}, held: map[string]places{}}
		r.pods[to] = p
		r.armSweepLocked()
	}
	return p
}

func (r *Relay) hasPlaceLocked(p *pod, stream bool, client string) bool {
	own := p.held[client]
	return !isFull(p.inFlight, own.requests, r.options.Requests) && (!stream || !isFull(p.streams, own.streams, r.options.Streams))
}

func (r *Relay) countInLocked(p *pod, stream bool, client string) {
	p.countLocked(stream, client, 1)
	r.armPingLocked(p)
}

// countLocked counts a request that comes or leaves.
func (p *pod) countLocked(stream bool, client string, change int) {
	own := p.held[client]
	p.inFlight += change
	own.requests += change
	if stream {
		p.streams += change
		own.streams += change
	}
	if p.held[client] = own; own.requests == 0 {
		delete(p.held, client)
	}
}

func (r *Relay) leave(p *pod, stream bool, client string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	scarce := stream || isScarce(p.inFlight, r.options.Requests) // otherwise no request waits for this place
	p.countLocked(stream, client, -1)
	if scarce {
		r.admitLocked(p)
	}
	if p.inFlight > 0 {
		return
	}
	p.lastUsed = time.Now()
	if p.ping.stop != nil { // the ping is of no use any more
		p.ping.stop()
	}
	r.forgetIfOverLocked(p)
}

// admitLocked gives places to requests that wait for one. None waits for a pod without requests in flight.
func (r *Relay) admitLocked(p *pod) {
	p.queue = slices.DeleteFunc(p.queue, func(q *queued) bool {
		if !r.hasPlaceLocked(p, q.stream, q.client) {
			return false
		}
		r.countInLocked(p, q.stream, q.client)
		close(q.entered)
		return true
	})
}
