package sessionless

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
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
	primary *primary // has the first process

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
		if by := first.continuations.find(token).process; by != nil && by.takesRequests() {
			return by
		}
		return first
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

func (pl *pool) mayStartLocked(limits *Limits) bool {
	return !pl.closed && !pl.starting && len(pl.others)+1 < limits.Processes && pl.backOff.Wait() <= 0
}

// start starts one more process. No client waits for it.
func (pl *pool) start() {
	common := pl.primary.shared
	ctx, cancel := context.WithTimeout(pl.primary.Context(), common.options.Limits.StartTimeout)
	defer cancel()
	server, err := common.options.Acquire(ctx)
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
		return
	}
	common.metrics.Starts.Inc()
	other := newProcess(server, nil, common, pl.remove)
	pl.others = append(pl.others, other)
	for _, first := range pl.primary.all() {
		first.mirrorAll(other)
	}
}

// remove is called when a process of the pool has ended.
func (pl *pool) remove(ended *process, reason error) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.others = slices.DeleteFunc(pl.others, func(p *process) bool { return p == ended })
	for _, first := range pl.primary.all() {
		first.dropMirrors(ended)
	}
	if time.Since(ended.started) < mux.Lasting && !isHarmless(reason) {
		pl.backOff.Failed(reason, poolPace)
	}
	ended.options.Log.V(1).Info("Another process for clients of the stateless revision ended", "reason", reason.Error())
}

// mirror mirrors a subscription at the first process at all others.
func (pl *pool) mirror(c *Call) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	for _, other := range pl.others {
		c.process.mirror(c, other)
	}
}

// all are all processes but the first.
func (pl *pool) all() []*process {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return slices.Clone(pl.others)
}

// drain drains all processes but the first until the context ends, and then ends them.
func (pl *pool) drain(ctx context.Context) {
	pl.mu.Lock()
	pl.closed = true
	pl.mu.Unlock()
	var ending sync.WaitGroup
	for _, other := range pl.all() {
		ending.Go(func() { other.end(ctx) })
	}
	ending.Wait()
}

// dropMirrors is for mirrors of subscriptions at another process, which has ended.
func (p *process) dropMirrors(other *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.subscriptions.subscribers {
		c.mirrors = slices.DeleteFunc(c.mirrors, func(mirror *Call) bool { return mirror.process == other })
	}
}

// mirrorAll mirrors all subscriptions at another process.
func (p *process) mirrorAll(other *process) {
	p.mu.Lock()
	calls := slices.Collect(maps.Keys(p.subscriptions.subscribers))
	p.mu.Unlock()
	for _, c := range calls {
		p.mirror(c, other)
	}
}

// mirror mirrors a subscription at another process. A goroutine that holds the other's lock
// may wait for this one's, so this method holds only one of them at a time.
func (p *process) mirror(c *Call, other *process) {
	p.mu.Lock()
	s, subscribed := p.subscriptions.subscribers[c]
	if !subscribed || slices.ContainsFunc(c.mirrors, func(mirror *Call) bool { return mirror.process == other }) {
		p.mu.Unlock()
		return
	}
	mirror := &Call{process: other, id: c.id, own: true, listen: true, answered: true, ready: make(chan struct{}, 1), forward: c.forwardChange}
	c.mirrors = append(c.mirrors, mirror)
	filter := s.filter
	p.mu.Unlock()
	other.mu.Lock()
	defer other.mu.Unlock()
	if other.DeadLocked() == nil {
		other.open[mirror] = struct{}{}
		other.addSubscriberLocked(mirror, filter)
	}
}

// forwardChange takes changes from a mirror, once the first process has acknowledged the
// subscription (N-02). All other messages of a mirror repeat those of the first process.
func (c *Call) forwardChange(e Event) {
	p := c.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, subscribed := p.subscriptions.subscribers[c]; subscribed && s.acknowledged && e.change {
		c.pushLocked(e)
	}
}
