package sessionless

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// pool has more processes beside the first for as long as that one is busy: most servers do
// one thing at a time. Nothing in the revision belongs to a connection, so any process can
// take any request, except one that continues another: it goes where that one went.
// Subscriptions stay with the first process, and are mirrored at the others, so that it does
// not matter which process tells of a change.
//
// It is no mux.Supervisor, which has one process that clients wait for. Here are several,
// and no client waits for another one to start.
type pool struct {
	server *Server

	mu       sync.Mutex
	others   []*process
	starting bool
	backOff  mux.BackOff
	closed   bool
}

// poolPace is slow from the first failure on, because no client waits for such a process:
// the first one serves meanwhile. It gets no slower, because load ends sooner than that.
var poolPace = mux.Pace{First: 10 * time.Second, Last: 10 * time.Second}

// choose returns the process that a request goes to, given the first. A process that is not
// busy comes before a new one, and the first before others, so that those become idle.
func (pl *pool) choose(first *process, request session.Message) *process {
	if first.translator != nil || string(request.Envelope.Method) == methodListen {
		return first
	}
	if token := continued(request); token != nil {
		return first.startedOr(token)
	}
	limits := &first.options.Limits
	load := first.load()
	if load < limits.TargetCalls {
		return first
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	best, least := first, load
	for _, other := range pl.others {
		if load := other.load(); load < least && other.takesRequests() {
			best, least = other, load
		}
	}
	if least >= limits.TargetCalls && pl.mayStartLocked(limits) {
		pl.starting = true
		go pl.start()
	}
	return best
}

// startedOr returns the process of the same Server that has started what a token names. It returns the first
// process if that one takes no more requests.
func (p *process) startedOr(token []byte) *process {
	if by := p.continuations.find(token).process; by != nil && by.shared == p.shared && by.takesRequests() {
		return by
	}
	return p
}

func (pl *pool) mayStartLocked(limits *Limits) bool {
	return !pl.closed && !pl.starting && len(pl.others)+1 < limits.Processes && pl.backOff.Wait() <= 0
}

// start starts one more process. No client waits for it.
func (pl *pool) start() {
	common := &pl.server.shared
	ctx, cancel := context.WithTimeout(pl.server.primary.Context(), common.options.Limits.StartTimeout)
	defer cancel()
	server, place, err := pl.server.acquire(ctx, false)
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.starting = false
	switch {
	case err != nil:
		pl.backOff.Failed(err, poolPace)
		common.options.Log.V(1).Info("No other process starts for a server that is busy", "reason", err.Error())
		return
	case pl.closed:
		server.Close()
		if place != nil {
			place.Leave()
		}
		return
	}
	common.metrics.Starts.Inc()
	started := newProcess(server, place, common, pl.remove)
	pl.others = append(pl.others, started)
	common.hub.join(started)
	if first, ok := pl.server.primary.Current(); ok {
		for _, c := range first.subscribed() {
			pl.mirrorLocked(c)
		}
	}
}

// remove is called when a process of the pool has ended.
func (pl *pool) remove(ended *process, reason error) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.others = slices.DeleteFunc(pl.others, func(p *process) bool { return p == ended })
	if time.Since(ended.started) < mux.Lasting && !isHarmless(reason) {
		pl.backOff.Failed(reason, poolPace)
	}
	ended.options.Log.V(1).Info("Another process for clients of the stateless revision ended", "reason", reason.Error())
}

// mirror makes a subscription at the first process one at all others, too.
func (pl *pool) mirror(c *Call) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.mirrorLocked(c)
}

// mirrorLocked is mirror with the pool's lock. A goroutine that holds the lock of another
// process may wait for that of the first, so mirrorLocked holds only one of them at a time.
func (pl *pool) mirrorLocked(c *Call) {
	first := c.process
	first.mu.Lock()
	s, subscribed := first.subscriptions.subscribers[c]
	if !subscribed {
		first.mu.Unlock()
		return
	}
	c.mirrored = pl
	filter := s.filter
	first.mu.Unlock()
	for _, other := range pl.others {
		other.addMirror(c, filter)
	}
}

// addMirror adds a subscription of the first process.
func (p *process) addMirror(c *Call, f subscription.Filter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, mirrored := p.subscriptions.subscribers[c]; !mirrored && p.DeadLocked() == nil {
		p.addSubscriberLocked(c, f)
	}
}

// unmirror is for a subscription at the first process that has ended.
func (pl *pool) unmirror(c *Call) {
	for _, other := range pl.all() {
		other.mu.Lock()
		other.unsubscribeLocked(c)
		other.mu.Unlock()
	}
}

// all are all processes but the first.
func (pl *pool) all() []*process {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return slices.Clone(pl.others)
}

// close starts no more processes.
func (pl *pool) close() {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.closed = true
}

// pushMirrored takes a change from another process, once the first process has acknowledged
// the subscription (N-02).
func (c *Call) pushMirrored(change Event) {
	p := c.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, subscribed := p.subscriptions.subscribers[c]; subscribed && s.acknowledged {
		c.pushLocked(change)
	}
}
