package sessionless

import (
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// uris count how many subscribers each resource has.
type uris struct {
	users map[string]int
	bytes int // of all URIs
}

// count counts so many subscribers more, or fewer, for the URIs of a filter.
func (u *uris) count(f subscription.Filter, by int) {
	if u.users == nil {
		u.users = map[string]int{}
	}
	for _, uri := range f.URIs {
		before := u.users[uri]
		u.users[uri] = before + by
		if before == 0 {
			u.bytes += len(uri)
		}
		if before+by == 0 {
			delete(u.users, uri)
			u.bytes -= len(uri)
		}
	}
}

func (u *uris) areTooMany() bool { return len(u.users) > maxURIs || u.bytes > maxURIBytes }

// foreignSubscriber is a Want of another pod at a process. The process does not need to stay for it.
type foreignSubscriber struct {
	filter       subscription.Filter
	acknowledged bool
	waits        bool          // for the next attempt, without a part in upstream
	late         bool          // the other pod does not wait for the process to acknowledge it
	settled      chan struct{} // closed when the process has answered
	answered     bool          // settled is closed
}

// refusedPace is that of attempts to subscribe other pods at a process that has answered with an error. Each attempt replaces
// the subscription of the clients here, and has them read everything again.
var refusedPace = mux.Pace{First: 30 * time.Second, Last: 10 * time.Minute}

// noteLocked notes what the process honors of a subscription that it has itself, if that is what the message says.
func (c *Call) noteLocked(message []byte) {
	if c.listening || !c.hearsOfOthers() {
		return
	}
	e, err := rpc.ScanLenient(message)
	if err != nil || string(e.Method) != subscription.MethodAcknowledged {
		return
	}
	if honored, _, err := subscription.Parse(message, e.Params); err == nil {
		c.listenLocked(honored)
	}
}

// addForeign subscribes another pod. It does so without resources if there is no room for them. The channel closes when the
// process has answered. If the other pod does not wait for that, it hears that everything may have changed until then.
func (p *process) addForeign(f *foreign, late bool) (settled <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.subscriptions
	if known := s.foreign[f]; known != nil {
		return known.settled
	}
	to := &foreignSubscriber{late: late, settled: make(chan struct{})}
	if f.stopped.Load() || p.DeadLocked() != nil {
		close(to.settled)
		return to.settled
	}
	if s.foreign == nil {
		s.foreign = map[*foreign]*foreignSubscriber{}
	}
	s.foreign[f] = to
	p.joinForeignLocked(f, to)
	s.acknowledgeLocked()
	p.updateUpstreamLocked()
	return to.settled
}

// joinForeignLocked gives a Want a part in upstream.
func (p *process) joinForeignLocked(f *foreign, to *foreignSubscriber) {
	s := &p.subscriptions
	to.filter, to.waits = f.Filter, false
	s.foreignActive++
	if s.foreignURIs.count(to.filter, 1); s.foreignURIs.areTooMany() {
		s.foreignURIs.count(to.filter, -1)
		to.filter.URIs = nil
		p.options.Log.Info("Clients of other pods get no notifications of resources that change here, because they subscribe to too many", "limit", maxURIs)
	}
	s.incomplete = s.incomplete || !s.requested.Includes(to.filter)
}

// partForeignLocked takes the part in upstream from a Want.
func (s *subscriptions) partForeignLocked(to *foreignSubscriber) {
	if !to.waits {
		s.foreignActive--
		s.foreignURIs.count(to.filter, -1)
		to.waits = true
	}
}

// dropForeign removes the Wants of other pods that are not there any more.
func (p *process) dropForeign() {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.subscriptions
	for f, to := range s.foreign {
		if f.stopped.Load() {
			s.partForeignLocked(to)
			delete(s.foreign, f)
		}
	}
	p.updateUpstreamLocked()
}

func (s *subscriptions) isEmptyLocked() bool { return len(s.subscribers) == 0 && s.foreignActive == 0 }

// acknowledgeForeignLocked is for a process that honors what was requested.
func (s *subscriptions) acknowledgeForeignLocked() {
	for f, to := range s.foreign {
		if to.acknowledged || to.waits || !s.requested.Includes(to.filter) {
			continue
		}
		to.acknowledged = true
		if to.late || f.observed.Load() {
			f.observer.Missed(f.index)
		}
		to.answer()
	}
}

func (to *foreignSubscriber) answer() {
	if !to.answered {
		to.answered = true
		close(to.settled)
	}
}

func (s *subscriptions) notifyForeignMissedLocked() {
	for f, to := range s.foreign {
		if to.acknowledged {
			f.observer.Missed(f.index)
		}
	}
}

func (s *subscriptions) notifyForeignLocked(method, uri string) (found bool) {
	for f, to := range s.foreign {
		if to.acknowledged && to.filter.Matches(method, uri) {
			f.observer.Changed(f.index, method, uri)
			found = true
		}
	}
	return found
}

// delayForeignLocked has Wants wait for the next attempt: all of them, or those that the process has never acknowledged. The
// other pods are not subscribed meanwhile, and hear that everything may have changed when they are again. It reports whether
// there are any.
func (p *process) delayForeignLocked(all bool, reason error, pace mux.Pace) (delayed bool) {
	s := &p.subscriptions
	for _, to := range s.foreign {
		if to.waits || to.acknowledged && !all {
			continue
		}
		delayed = true
		s.partForeignLocked(to)
		to.acknowledged, to.late = false, true
		to.answer()
	}
	if !delayed || s.foreignRetry != nil {
		return delayed
	}
	if s.foreignBackOff.Wait() < -2*acknowledgeTimeout { // so the last attempt did not fail
		s.foreignBackOff.Reset()
	}
	s.foreignRetry = time.AfterFunc(s.foreignBackOff.Failed(reason, pace), p.retryForeign)
	return delayed
}

// retryForeign subscribes the Wants that wait for it.
func (p *process) retryForeign() {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.subscriptions
	s.foreignRetry = nil
	if p.DeadLocked() != nil {
		return
	}
	for f, to := range s.foreign {
		if to.waits {
			p.joinForeignLocked(f, to)
		}
	}
	s.acknowledgeLocked()
	p.updateUpstreamLocked()
}

// stopForeignLocked is for a process that ends.
func (s *subscriptions) stopForeignLocked() {
	if s.foreignRetry != nil {
		s.foreignRetry.Stop()
	}
}
