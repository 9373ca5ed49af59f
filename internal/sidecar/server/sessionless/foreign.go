package sessionless

import (
	"github.com/slipway-mcp/slipway/internal/rpc"
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
	settled      chan struct{} // closed when the process has answered
}

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
// process has answered.
func (p *process) addForeign(f *foreign) (settled <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.subscriptions
	if known := s.foreign[f]; known != nil {
		return known.settled
	}
	to := &foreignSubscriber{filter: f.Filter, settled: make(chan struct{})}
	if f.stopped.Load() || p.DeadLocked() != nil {
		close(to.settled)
		return to.settled
	}
	if s.foreign == nil {
		s.foreign = map[*foreign]*foreignSubscriber{}
	}
	s.foreign[f] = to
	if s.foreignURIs.count(to.filter, 1); s.foreignURIs.areTooMany() {
		s.foreignURIs.count(to.filter, -1)
		to.filter.URIs = nil
		p.options.Log.Info("Clients of other pods hear of no resource that changes here, because they subscribe to too many", "limit", maxURIs)
	}
	s.incomplete = s.incomplete || !s.requested.Includes(to.filter)
	s.acknowledgeLocked()
	p.updateUpstreamLocked()
	return to.settled
}

// dropForeign removes the Wants of other pods that are not there any more.
func (p *process) dropForeign() {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.subscriptions
	for f, to := range s.foreign {
		if f.stopped.Load() {
			s.foreignURIs.count(to.filter, -1)
			delete(s.foreign, f)
		}
	}
	p.updateUpstreamLocked()
}

func (s *subscriptions) isEmptyLocked() bool { return len(s.subscribers) == 0 && len(s.foreign) == 0 }

func (s *subscriptions) acknowledgeForeignLocked() {
	for _, to := range s.foreign {
		if !to.acknowledged && s.requested.Includes(to.filter) {
			to.acknowledged = true
			close(to.settled)
		}
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

// refuseForeignLocked is for a process that has answered a subscription with an error. It reports whether that was the
// first answer for one of the Wants.
func (s *subscriptions) refuseForeignLocked() (refused bool) {
	for f, to := range s.foreign {
		if to.acknowledged {
			continue
		}
		refused = true
		s.foreignURIs.count(to.filter, -1)
		delete(s.foreign, f)
		close(to.settled)
	}
	return refused
}

// endForeignLocked is for a process that has ended the subscription. The other pods ask again.
func (s *subscriptions) endForeignLocked() {
	for f, to := range s.foreign {
		if s.foreignURIs.count(to.filter, -1); !to.acknowledged {
			close(to.settled)
		}
		delete(s.foreign, f)
		f.observer.Ended()
	}
}
