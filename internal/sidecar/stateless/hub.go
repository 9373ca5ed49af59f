package stateless

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// hub has one subscription at the process for all clients that listen, and gives each
// what it asked for. Servers of the official Go SDK have one subscription for each
// connection: a second one takes the place of the first, and the end of either ends
// both. (Measured with v1.8.0 on standard input and output.)
//
// Guarded by the run's mutex.
type hub struct {
	listeners map[*call]*listener
	uris      map[string]int // of how many listeners each is
	uriBytes  int            // of these
	filters   int            // bytes that the filters of all listeners hold
	upstream  *call          // the subscription at the process
	wanted    subscription.Filter
	agreed    *subscription.Filter // nil until the process has said so
	lacking   bool                 // a client wants more than the process was asked for
	changing  bool                 // the goroutine of change runs
	paid      time.Time            // by when the replacements so far are paid for
}

// listener is a client that listens.
type listener struct {
	filter subscription.Filter
	told   bool // what is honoured of it (N-02)
}

const (
	// subscribedURIs is how many resources can be subscribed to, by all clients, and
	// subscribedBytes how long all of their names may be.
	subscribedURIs  = 4096
	subscribedBytes = 1 << 20
	// filterBytes is what the filters of all clients may hold, also of the same resources.
	filterBytes = 16 << 20
	// uriOverhead is what a filter holds for a resource besides its name.
	uriOverhead = 128
	// listenTimeout is for the process to say what it honours of a subscription.
	listenTimeout = 10 * time.Second
	// retireGrace is for the process to answer a subscription that was cancelled. It
	// need not, but one that does has forgotten the subscription only then.
	retireGrace = 100 * time.Millisecond
	// replacePause is between two replacements of the subscription at the process, after a
	// burst: each has all clients look again at what they are subscribed to.
	replacePause = 250 * time.Millisecond
	replaceBurst = 16
)

var errURIs = fault.Busy("as many resources are subscribed to as may be, or as have such long names")

// join adds a client that listens.
func (r *run) join(c *call, request session.Message, f subscription.Filter) (*call, error) {
	c.answered = true // the process does not know of it
	if err := r.register(c, request); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.sending -= len(request.Bytes)
	r.forgetLocked(c)
	enough := r.listenLocked(c, f)
	r.mu.Unlock()
	if !enough {
		c.release()
		return nil, errURIs
	}
	return c, nil
}

// listenLocked has a call listen. It says whether there is room for what it wants.
func (r *run) listenLocked(c *call, f subscription.Filter) bool {
	h := &r.hub
	if h.listeners == nil {
		h.listeners, h.uris = map[*call]*listener{}, map[string]int{}
	}
	h.listeners[c] = &listener{filter: f}
	h.countLocked(f, 1)
	if len(h.uris) > subscribedURIs || h.uriBytes > subscribedBytes || h.filters > filterBytes {
		h.removeLocked(c)
		return false
	}
	h.lacking = h.lacking || !h.wanted.Includes(f)
	h.tellLocked()
	r.changeLocked()
	return true
}

// countLocked notes that so many listeners more, or less, want what a filter has.
func (h *hub) countLocked(f subscription.Filter, by int) {
	for _, uri := range f.URIs {
		h.filters += by * (len(uri) + uriOverhead)
		before := h.uris[uri]
		h.uris[uri] = before + by
		if before == 0 {
			h.uriBytes += len(uri)
		}
		if before+by == 0 {
			delete(h.uris, uri)
			h.uriBytes -= len(uri)
		}
	}
}

// removeLocked has a call listen no more.
func (h *hub) removeLocked(c *call) bool {
	l, listens := h.listeners[c]
	if listens {
		h.countLocked(l.filter, -1)
		delete(h.listeners, c)
	}
	return listens
}

// leaveLocked is for a client that listens no more.
func (r *run) leaveLocked(c *call) {
	if r.hub.removeLocked(c) {
		r.changeLocked()
	}
	for _, shadow := range c.repeats {
		go shadow.release() // whose lock may be held by whoever wants ours
	}
	c.repeats = nil
}

// unionLocked is all that clients want, and every kind of list, so that there is
// seldom anything to change.
func (h *hub) unionLocked() subscription.Filter {
	union := subscription.Filter{URIs: slices.Sorted(maps.Keys(h.uris))}
	for i := range union.Lists {
		union.Lists[i] = true
	}
	return union
}

// neededLocked says whether the subscription at the process is not what it should be.
// One that is about too much is left alone.
func (h *hub) neededLocked() bool {
	switch {
	case len(h.listeners) == 0:
		return h.upstream != nil
	default:
		return h.upstream == nil || h.lacking
	}
}

func (r *run) changeLocked() {
	if r.DeadLocked() == nil && !r.hub.changing && r.hub.neededLocked() {
		r.hub.changing = true
		go r.change()
	}
}

// change makes the subscription at the process what it should be.
func (r *run) change() {
	for {
		next, needed := r.nextChange()
		if !needed {
			return
		}
		if next.wait > 0 {
			select {
			case <-time.After(next.wait):
			case <-r.Over():
			}
		}
		if next.retire != nil {
			next.retire.retire()
		}
		if next.subscribe {
			r.subscribe()
		}
	}
}

// step is what is to be done next for the subscription at the process.
type step struct {
	wait      time.Duration // and look again
	retire    *call         // the subscription that is there; no other code knows it any more
	subscribe bool          // after that
}

// nextChange says whether the subscription at the process has to change, and how.
func (r *run) nextChange() (next step, needed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.hub
	if r.DeadLocked() != nil || !h.neededLocked() {
		h.changing = false
		return step{}, false
	}
	if wait := h.pauseLocked(); wait > 0 {
		return step{wait: wait}, true
	}
	next = step{retire: h.upstream, subscribe: len(h.listeners) > 0}
	h.upstream, h.agreed = nil, nil
	h.wanted, h.lacking = h.unionLocked(), false
	return next, true
}

// pauseLocked is how long a replacement has to wait. The end of the last client's subscription
// does not: it has no client look again.
func (h *hub) pauseLocked() time.Duration {
	if h.upstream == nil || len(h.listeners) == 0 {
		return 0
	}
	now := time.Now()
	if due := h.paid.Add(-(replaceBurst - 1) * replacePause); due.After(now) {
		return due.Sub(now)
	}
	if h.paid.Before(now) {
		h.paid = now
	}
	h.paid = h.paid.Add(replacePause)
	return 0
}

// retire ends a subscription at the process.
func (c *call) retire() {
	r := c.run
	r.mu.Lock()
	cancel := !c.answered
	c.answered = true
	r.mu.Unlock()
	if cancel && r.server.Send(context.Background(), session.Message{Bytes: mux.Cancellation(c.number, "the client has gone")}) == nil {
		ctx, stop := context.WithTimeout(context.Background(), retireGrace)
		defer stop()
		_, _ = c.await(ctx) // it may say nothing
	}
	c.release()
}

// subscribe opens the subscription at the process, and tells clients what came of it.
func (r *run) subscribe() {
	h := &r.hub
	r.mu.Lock()
	request := ownRequest(methodListen, `"notifications":`+h.wanted.String()+`,`+ownMeta())
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), listenTimeout)
	defer cancel()
	c, err := r.begin(ctx, request)
	if err != nil {
		r.refuseListeners(func(c *call) { c.failLocked(err.Error()) })
		return
	}
	first, err := c.first(ctx)
	switch {
	case err != nil:
		c.retire()
		r.refuseListeners(func(c *call) {
			c.failLocked("the server did not answer " + methodListen + " within " + listenTimeout.String())
		})
	case first.last:
		c.release()
		r.refuseListeners(func(c *call) { c.pushLocked(answerFor(first, c.id)) })
	default:
		r.agree(c, first.message)
	}
}

// first waits for the first message.
func (c *call) first(ctx context.Context) (event, error) {
	for {
		if next, ok := c.take(); ok {
			return next, nil
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return event{}, ctx.Err()
		}
	}
}

// agree notes what the process honours, and tells clients.
func (r *run) agree(c *call, acknowledged []byte) {
	var honored subscription.Filter
	if e, err := rpc.ScanLenient(acknowledged); err == nil {
		honored, _, _ = subscription.Parse(acknowledged, e.Params) // of what cannot be read nothing is honored
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.hub
	h.upstream, h.agreed = c, &honored
	h.tellAllLocked() // and none of those who are told by the next line that they are subscribed
	h.tellLocked()
	for _, early := range c.inbox {
		if e, err := rpc.ScanLenient(early.message); err == nil {
			h.newsLocked(session.Message{Bytes: early.message, Envelope: e})
		}
	}
	r.takenLocked(c, c.waiting)
	c.inbox, c.inHand = nil, 0
	if c.done {
		r.upstreamEndedLocked()
	}
}

// refuseListeners answers clients that have not been told anything by what does it. The
// process has agreed to what the others want before, and is asked again; if there are
// only such, theirs are over.
func (r *run) refuseListeners(answer func(*call)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.hub
	var fresh []*call
	for c, l := range h.listeners {
		if !l.told {
			fresh = append(fresh, c)
		}
	}
	for _, c := range fresh {
		answer(c)
		h.removeLocked(c)
	}
	if len(fresh) == 0 {
		h.endLocked()
	}
}

// endLocked ends all subscriptions in order.
func (h *hub) endLocked() {
	for c := range h.listeners {
		c.completeLocked()
		h.removeLocked(c)
	}
}

// upstreamEndedLocked is for a process that has ended the subscription.
func (r *run) upstreamEndedLocked() {
	h := &r.hub
	if upstream := h.upstream; upstream != nil {
		upstream.answered = true
		r.closeLocked(upstream)
	}
	h.upstream, h.agreed = nil, nil
	h.endLocked()
}

// answerFor is an answer to a request of our own as the answer to a client's.
func answerFor(answer event, id []byte) event {
	e, err := rpc.ScanLenient(answer.message)
	if err != nil {
		return answer // it was scanned before
	}
	return event{message: rpc.Edited(answer.message, rpc.Edit{Span: e.ID, With: id}), last: true, status: answer.status}
}
