package sessionless

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// subscriptions has one upstream subscription at the process for all clients, and gives each
// client the changes that it subscribed to. Servers of the official Go SDK have one
// subscription for each connection: a second one takes the place of the first, and the end of
// either ends both. (Measured with v1.8.0 on standard input and output.)
//
// Guarded by the process's mutex.
type subscriptions struct {
	subscribers map[*Call]*subscriber
	uris        uris // of these
	filterBytes int  // that their filters hold
	foreign     map[*foreign]*foreignSubscriber
	foreignURIs uris

	foreignActive  int         // of foreign, those that do not wait
	foreignRetry   *time.Timer // subscribes those that do; nil if there are none
	foreignBackOff mux.BackOff

	upstream   *Call // the subscription at the process
	requested  subscription.Filter
	honored    *subscription.Filter // nil until the process has acknowledged upstream
	incomplete bool                 // a client wants more than requested
	updating   bool                 // the goroutine of updateUpstream runs
	paced      time.Time            // when the replacements so far would be done at the slow pace
}

// subscriber is a client that is subscribed.
type subscriber struct {
	mirror       bool // the call is at the first process, and takes only changes from this one
	filter       subscription.Filter
	acknowledged bool // the client knows what the process honors of the filter (N-02)
}

const (
	// maxURIs is how many resources all clients can subscribe to, and maxURIBytes how long all
	// of their URIs may be. Those of other pods can be as many again.
	maxURIs     = 4096
	maxURIBytes = 1 << 20
	// maxFilterBytes is what the filters of all clients may hold, also of the same resources.
	maxFilterBytes = 16 << 20
	// uriOverhead is what a filter holds for a resource besides its URI.
	uriOverhead = 128
	// acknowledgeTimeout is for the process to acknowledge a subscription.
	acknowledgeTimeout = 10 * time.Second
	// cancelGrace is for the process to answer a subscription that was cancelled. It need not,
	// but one that does has forgotten the subscription only then.
	cancelGrace = 100 * time.Millisecond
	// replacePause is between two replacements of the upstream subscription, after a burst:
	// each makes all clients read again what they are subscribed to.
	replacePause = 250 * time.Millisecond
	replaceBurst = 16
)

var (
	errListenRefused = errors.New("the server refuses the subscription")
	errListenEnded   = errors.New("the server has ended the subscription")
)

var errURIs = fault.Busy("the limit of subscribed resources, or of the length of their URIs, is reached")

// subscribe adds a client's subscription.
func (p *process) subscribe(c *Call, request session.Message, f subscription.Filter) (*Call, error) {
	c.answered = true // the process does not know of it
	if err := p.register(c, request); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.sending -= len(request.Bytes)
	p.forgetLocked(c)
	added := p.addSubscriberLocked(c, f)
	p.mu.Unlock()
	if !added {
		c.Release()
		return nil, errURIs
	}
	return c, nil
}

// addSubscriberLocked adds a subscriber, unless there is no room for its filter.
func (p *process) addSubscriberLocked(c *Call, f subscription.Filter) (added bool) {
	s := &p.subscriptions
	if s.subscribers == nil {
		s.subscribers = map[*Call]*subscriber{}
	}
	s.subscribers[c] = &subscriber{mirror: c.process != p, filter: f}
	s.countLocked(f, 1)
	if s.uris.areTooMany() || s.filterBytes > maxFilterBytes {
		s.removeLocked(c)
		return false
	}
	s.incomplete = s.incomplete || !s.requested.Includes(f)
	s.acknowledgeLocked()
	p.updateUpstreamLocked()
	return true
}

// subscribed are the calls of all subscribers.
func (p *process) subscribed() []*Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.subscriptions.subscribers))
}

// countLocked counts so many subscribers more, or fewer, for the URIs of a filter.
func (s *subscriptions) countLocked(f subscription.Filter, by int) {
	s.uris.count(f, by)
	for _, uri := range f.URIs {
		s.filterBytes += by * (len(uri) + uriOverhead)
	}
}

// removeLocked removes a subscriber, and says whether it was there.
func (s *subscriptions) removeLocked(c *Call) bool {
	to, subscribed := s.subscribers[c]
	if subscribed {
		s.countLocked(to.filter, -1)
		delete(s.subscribers, c)
	}
	return subscribed
}

// unsubscribeLocked is for a call that ends.
func (p *process) unsubscribeLocked(c *Call) {
	if p.subscriptions.removeLocked(c) {
		p.updateUpstreamLocked()
	}
}

// unionLocked is all that clients want, and every kind of list, so that upstream seldom
// changes.
func (s *subscriptions) unionLocked() subscription.Filter {
	own := subscription.Filter{Lists: subscription.All(), URIs: slices.Sorted(maps.Keys(s.uris.users))}
	return own.Or(subscription.Filter{URIs: slices.Collect(maps.Keys(s.foreignURIs.users))})
}

// isOutdatedLocked reports whether upstream lacks a change that a client wants, or exists without
// clients. Extra changes do not make it outdated.
func (s *subscriptions) isOutdatedLocked() bool {
	if s.isEmptyLocked() {
		return s.upstream != nil
	}
	return s.upstream == nil || s.incomplete
}

// updateUpstreamLocked has upstream replaced if it is outdated. It does not wait for that.
func (p *process) updateUpstreamLocked() {
	if s := &p.subscriptions; p.DeadLocked() == nil && !s.updating && s.isOutdatedLocked() {
		s.updating = true
		go p.updateUpstream()
	}
}

// updateUpstream replaces upstream until it is not outdated.
func (p *process) updateUpstream() {
	for step := p.nextUpdate(); step != nil; step = p.nextUpdate() {
		step()
	}
}

// nextUpdate is one step towards another upstream subscription, or nil if upstream is not
// outdated.
func (p *process) nextUpdate() (step func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.subscriptions
	if p.DeadLocked() != nil || !s.isOutdatedLocked() {
		s.updating = false
		return nil
	}
	if wait := s.paceLocked(); wait > 0 {
		return func() {
			select {
			case <-time.After(wait):
			case <-p.Over():
			}
		}
	}
	former, wanted := s.upstream, !s.isEmptyLocked()
	s.upstream, s.honored = nil, nil // no other code knows the former any more
	s.requested, s.incomplete = s.unionLocked(), false
	return func() {
		if former != nil {
			former.cancelUpstream()
		}
		if wanted {
			p.openUpstream()
		}
	}
}

// paceLocked is how long a replacement has to wait; 0 counts it. The end of the last client's
// subscription need not wait, because no client has to read anything again.
func (s *subscriptions) paceLocked() time.Duration {
	if s.upstream == nil || s.isEmptyLocked() {
		return 0
	}
	now := time.Now()
	if due := s.paced.Add(-(replaceBurst - 1) * replacePause); due.After(now) {
		return due.Sub(now)
	}
	if s.paced.Before(now) {
		s.paced = now
	}
	s.paced = s.paced.Add(replacePause)
	return 0
}

// cancelUpstream ends a subscription at the process.
func (c *Call) cancelUpstream() {
	p := c.process
	p.mu.Lock()
	cancel := !c.answered
	c.answered = true
	p.mu.Unlock()
	if cancel && p.server.Send(context.Background(), session.Message{Bytes: mux.Cancellation(c.number, clientGone)}) == nil {
		ctx, stop := context.WithTimeout(context.Background(), cancelGrace)
		defer stop()
		_, _ = c.await(ctx) // the process need not answer
	}
	c.Release()
}

// openUpstream opens the subscription at the process, and tells clients the outcome.
func (p *process) openUpstream() {
	p.mu.Lock()
	params := `"notifications":` + p.subscriptions.requested.String() + `,` + metaWith(allCapabilities)
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), acknowledgeTimeout)
	defer cancel()
	c, err := p.ask(ctx, nil, methodListen, params)
	if err != nil {
		p.refuseSubscribers(err, mux.Background, func(c *Call) { c.failLocked(err.Error()) })
		return
	}
	first, err := c.awaitNext(ctx)
	switch {
	case err != nil:
		c.cancelUpstream()
		p.refuseSubscribers(err, mux.Background, func(c *Call) {
			c.failLocked("the server did not answer " + methodListen + " within " + acknowledgeTimeout.String())
		})
	case first.Last:
		c.Release()
		p.refuseSubscribers(errListenRefused, refusedPace, func(c *Call) { c.pushLocked(answerFor(first, c.id)) })
	default:
		p.acknowledged(c, first.Message)
	}
}

// acknowledged records what the process honors of the new upstream, and tells clients.
func (p *process) acknowledged(c *Call, acknowledgement []byte) {
	var honored subscription.Filter
	if e, err := rpc.ScanLenient(acknowledgement); err == nil {
		honored, _, _ = subscription.Parse(acknowledgement, e.Params) // a filter that cannot be read honors nothing
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.subscriptions
	s.upstream, s.honored = c, &honored
	s.notifyMissedLocked() // before clients are acknowledged that have missed nothing
	s.acknowledgeLocked()
	for _, early := range c.inbox {
		if e, err := rpc.ScanLenient(early.Message); err == nil {
			s.notifyLocked(session.Message{Bytes: early.Message, Envelope: e})
		}
	}
	p.takenLocked(c, c.buffered)
	c.inbox, c.writing = nil, 0
	if c.done {
		p.upstreamEndedLocked()
	}
}

// refuseSubscribers answers the clients that were never acknowledged, and keeps the others, for
// which the adapter asks again. If all were acknowledged, it ends all subscriptions. Those of other pods wait
// for another attempt instead.
func (p *process) refuseSubscribers(reason error, pace mux.Pace, answer func(*Call)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.subscriptions
	refused := false
	for c, to := range s.subscribers {
		if to.acknowledged {
			continue
		}
		refused = true
		if !to.mirror {
			answer(c)
		}
		s.removeLocked(c)
	}
	if p.delayForeignLocked(false, reason, pace) || refused {
		return
	}
	p.endSubscribersLocked(reason, pace)
}

// completeLocked ends a subscription in order.
func (s *subscriptions) completeLocked(c *Call) {
	if !s.subscribers[c].mirror {
		c.completeLocked()
	}
	s.removeLocked(c)
}

// endSubscribersLocked ends all subscriptions of clients in order. Those of other pods wait for another attempt.
func (p *process) endSubscribersLocked(reason error, pace mux.Pace) {
	s := &p.subscriptions
	for c := range s.subscribers {
		s.completeLocked(c)
	}
	p.delayForeignLocked(true, reason, pace)
}

// upstreamEndedLocked is for a process that has ended the subscription.
func (p *process) upstreamEndedLocked() {
	s := &p.subscriptions
	if s.upstream != nil {
		s.upstream.answered = true
		p.closeLocked(s.upstream)
	}
	s.upstream, s.honored = nil, nil
	p.endSubscribersLocked(errListenEnded, mux.Background)
}

// answerFor is an answer to a request of the adapter's own as the answer to a client's.
func answerFor(answer Event, id []byte) Event {
	e, err := rpc.ScanLenient(answer.Message)
	if err != nil {
		return answer // it was scanned before
	}
	return Event{Message: rpc.Edited(answer.Message, rpc.Edit{Span: e.ID, With: id}), Last: true, Code: answer.Code}
}
