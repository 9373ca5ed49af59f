package stateless

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// crowd has more processes for as long as one is not enough: most servers do one thing at
// a time. Nothing in the revision belongs to a connection, so any of them can take any
// request, but for what goes on with one before: that goes where the one before went.
// Subscriptions stay with the first, and are repeated at the others, so that it does not
// matter which of them has news.
//
// It is no mux.Supervisor, which has one process that clients wait for. Here are several,
// and no client waits for another one to start.
type crowd struct {
	process *process // has the first
	begun   begun

	mu       sync.Mutex
	others   []*run
	starting bool
	backOff  mux.BackOff
	closed   bool
}

// crowdPace is slow from the first failure on, because no client waits for such a process:
// the first one serves meanwhile. It gets no slower, because load ends sooner than that.
var crowdPace = mux.Pace{First: 10 * time.Second, Last: 10 * time.Second}

// choose returns the process that a request goes to, given the first. One that is not
// crowded is taken before any is started, and the first before others, so that those end.
func (c *crowd) choose(first *run, request session.Message) *run {
	if first.translator != nil || string(request.Envelope.Method) == methodListen {
		return first
	}
	if goesOn := goesOnWith(request); goesOn != nil {
		return c.begun.who(goesOn, first)
	}
	load, _ := first.load()
	if load < first.options.Limits.Crowd {
		return first
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	best, least := first, load
	for _, other := range c.others {
		if load, alive := other.load(); alive && load < least {
			best, least = other, load
		}
	}
	if least >= first.options.Limits.Crowd && c.mayStartLocked(&first.options.Limits) {
		c.starting = true
		go c.start(first)
	}
	return best
}

func (c *crowd) mayStartLocked(limits *Limits) bool {
	return !c.closed && !c.starting && len(c.others)+1 < limits.Processes && c.backOff.Wait() <= 0
}

// load is how many requests of clients are in flight, and whether there can be more.
func (r *run) load() (requests int, alive bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inFlight, r.DeadLocked() == nil
}

// start starts one more process. No client waits for it.
func (c *crowd) start(first *run) {
	ctx, cancel := context.WithTimeout(c.process.Context(), first.options.Limits.StartTimeout)
	defer cancel()
	server, err := first.options.Acquire(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starting = false
	switch {
	case err != nil:
		c.backOff.Failed(err, crowdPace)
		first.options.Log.V(1).Info("No other process can be had for a server that is busy", "reason", err.Error())
		return
	case c.closed:
		server.Close()
		return
	}
	first.metrics.Starts.Inc()
	other := newRun(server, nil, first.options, first.metrics, c.left)
	other.mu.Lock()
	other.noteBegun = c.begun.note
	other.mu.Unlock()
	c.others = append(c.others, other)
	for _, first := range c.process.all() { // which may be another by now
		first.repeatAll(other)
	}
}

// left is told of each other process's end.
func (c *crowd) left(over *run, reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others = slices.DeleteFunc(c.others, func(r *run) bool { return r == over })
	c.begun.forget(over)
	for _, first := range c.process.all() {
		first.forgetRepeats(over)
	}
	if time.Since(over.began) < mux.Lasting && !harmless(reason) {
		c.backOff.Failed(reason, crowdPace)
	}
	over.options.Log.V(1).Info("Another process for clients of the stateless revision ended", "reason", reason.Error())
}

// repeat has a subscription at the first process at all others, too.
func (c *crowd) repeat(listening *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.others {
		listening.run.repeat(listening, other)
	}
}

// all are all but the first process.
func (c *crowd) all() []*run {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.others)
}

// drain ends all but the first process, as run.end does.
func (c *crowd) drain(ctx context.Context) {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	var ending sync.WaitGroup
	for _, other := range c.all() {
		ending.Go(func() { other.end(ctx) })
	}
	ending.Wait()
}

// forgetRepeats is for subscriptions at another process, which has ended.
func (r *run) forgetRepeats(other *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.hub.listeners {
		c.repeats = slices.DeleteFunc(c.repeats, func(shadow *call) bool { return shadow.run == other })
	}
}

// repeatAll has all subscriptions at another process, too.
func (r *run) repeatAll(other *run) {
	r.mu.Lock()
	listening := make([]*call, 0, len(r.hub.listeners))
	for c := range r.hub.listeners {
		listening = append(listening, c)
	}
	r.mu.Unlock()
	for _, c := range listening {
		r.repeat(c, other)
	}
}

// repeat has a subscription at another process, too. The other's lock may be held by
// whoever wants ours, so ours is not held here while we wait for it.
func (r *run) repeat(c *call, other *run) {
	r.mu.Lock()
	l, listens := r.hub.listeners[c]
	if !listens || slices.ContainsFunc(c.repeats, func(shadow *call) bool { return shadow.run == other }) {
		r.mu.Unlock()
		return
	}
	shadow := &call{run: other, id: c.id, own: true, listen: true, answered: true, wake: make(chan struct{}, 1), forward: c.hear}
	c.repeats = append(c.repeats, shadow)
	f := l.filter
	r.mu.Unlock()
	other.mu.Lock()
	defer other.mu.Unlock()
	if other.DeadLocked() == nil {
		other.open[shadow] = struct{}{}
		other.listenLocked(shadow, f)
	}
}

// hear takes news of another process, once the client knows what it is subscribed to
// (N-02). All else that the other says of the subscription the first has said already.
func (c *call) hear(e event) {
	r := c.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if l, listens := r.hub.listeners[c]; listens && l.told && e.news {
		c.pushLocked(e)
	}
}
