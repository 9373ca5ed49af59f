package sessionless

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// hub is where the processes of this pod and the subscriptions of clients meet those of other pods. A pod that listens is
// one subscriber more of each process, and what another pod tells is as if one process more had told it. Processes
// and subscriptions of different principals do not meet.
//
// A goroutine that holds the mutex of a process may wait for that of the hub, and not the other way round.
type hub struct {
	mu        sync.Mutex
	listeners map[string]map[*Call]subscription.Filter // of clients, by the share of their Server
	processes map[string]map[*process]struct{}
	foreign   map[*foreign]struct{}
	changed   chan struct{} // closed when the listeners change; nil unless something waits for it
	refusing  bool
}

func newHub() *hub {
	return &hub{
		listeners: map[string]map[*Call]subscription.Filter{}, processes: map[string]map[*process]struct{}{},
		foreign: map[*foreign]struct{}{},
	}
}

// foreign is a Want of another pod.
type foreign struct {
	subscription.Want
	index    int
	observer subscription.Observer
	stopped  atomic.Bool
	observed atomic.Bool // the other pod has been told that the processes know of it
}

// hearsOfOthers reports whether a Call is a subscription to the changes of all pods. Those of sessions are not, because the
// session is at this pod.
func (c *Call) hearsOfOthers() bool {
	p := c.process
	return c.listen && !c.internal && !c.own && (p.translator == nil || p.options.OneForAll)
}

// listenLocked adds a subscription that the process has acknowledged.
func (c *Call) listenLocked(honored subscription.Filter) {
	if c.hearsOfOthers() && !c.listening && !honored.IsEmpty() {
		c.listening = true
		c.process.hub.add(c.process.share, c, honored)
	}
}

func (h *hub) add(share string, c *Call, honored subscription.Filter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.listeners[share]
	if of == nil {
		of = map[*Call]subscription.Filter{}
		h.listeners[share] = of
	}
	of[c] = honored
	h.announceLocked()
}

func (h *hub) remove(share string, c *Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners[share], c)
	if len(h.listeners[share]) == 0 {
		delete(h.listeners, share)
	}
	h.announceLocked()
}

func (h *hub) announceLocked() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// wanted is what clients listen to, and a channel that closes when that changes.
func (h *hub) wanted() (wants []subscription.Want, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	for share, calls := range h.listeners {
		want := subscription.Want{Principal: share}
		for _, f := range calls {
			for i := range f.Lists {
				want.Lists[i] = want.Lists[i] || f.Lists[i]
			}
			want.URIs = append(want.URIs, f.URIs...)
		}
		slices.Sort(want.URIs)
		want.URIs = slices.Compact(want.URIs)
		wants = append(wants, want)
	}
	slices.SortFunc(wants, subscription.CompareWants)
	return wants, h.changed
}

// tell gives the listeners of a share what has changed, as pick chooses for each.
func (h *hub) tell(share string, pick func(subscription.Filter) subscription.Filter) {
	h.mu.Lock()
	told := make(map[*Call]subscription.Filter, len(h.listeners[share]))
	for c, f := range h.listeners[share] {
		if picked := pick(f); !picked.IsEmpty() {
			told[c] = picked
		}
	}
	h.mu.Unlock()
	for c, f := range told {
		c.process.mu.Lock()
		for method, uri := range f.Each {
			c.pushLocked(Event{Message: subscription.Notification(method, uri, subscription.Tag(c.id))})
		}
		c.process.mu.Unlock()
	}
}

// join has a process tell other pods of its changes.
func (h *hub) join(p *process) {
	h.mu.Lock()
	if h.processes[p.share] == nil {
		h.processes[p.share] = map[*process]struct{}{}
	}
	h.processes[p.share][p] = struct{}{}
	var wants []*foreign
	for f := range h.foreign {
		if f.Principal == p.share {
			wants = append(wants, f)
		}
	}
	h.mu.Unlock()
	for _, f := range wants {
		p.addForeign(f, true) // a request may have started the process, and have changed something already
	}
	if p.Dead() != nil {
		h.leave(p)
	}
}

func (h *hub) leave(p *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.processes[p.share], p)
	if len(h.processes[p.share]) == 0 {
		delete(h.processes, p.share)
	}
}

// observe has all processes, and those that start later, tell the observer. It waits until those that run do so, or have
// failed to. One that does so later has the observer hear that everything may have changed. running says for which Wants there is one.
func (h *hub) observe(ctx context.Context, wants []subscription.Want, o subscription.Observer) (running []bool, stop func(), err error) {
	var added []*foreign
	h.mu.Lock()
	if h.refusing {
		h.mu.Unlock()
		return nil, nil, fault.ErrDraining
	}
	at := make([][]*process, len(wants))
	for i, want := range wants {
		f := &foreign{Want: want, index: i, observer: o}
		h.foreign[f] = struct{}{}
		added = append(added, f)
		for p := range h.processes[want.Principal] {
			at[i] = append(at[i], p)
		}
	}
	h.mu.Unlock()
	running = make([]bool, len(wants))
	for i, f := range added {
		running[i] = len(at[i]) > 0
		for _, p := range at[i] {
			settled := p.addForeign(f, false)
			select {
			case <-settled:
			case <-p.Over():
			case <-ctx.Done():
			}
		}
		f.observed.Store(true)
	}
	return running, func() { h.forget(added) }, nil
}

func (h *hub) forget(gone []*foreign) {
	var at []*process
	h.mu.Lock()
	for _, f := range gone {
		f.stopped.Store(true)
		delete(h.foreign, f)
		for p := range h.processes[f.Principal] {
			at = append(at, p)
		}
	}
	h.mu.Unlock()
	for _, p := range at {
		p.dropForeign()
	}
}

// refuse tells other pods of no more changes.
func (h *hub) refuse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refusing = true
	for f := range h.foreign {
		f.observer.Ended()
	}
}

// Wanted returns what the clients without sessions of this pod listen to, by principal, and a channel that closes when that
// changes.
func (p *Principals) Wanted() (wants []subscription.Want, changed <-chan struct{}) {
	return p.common.hub.wanted()
}

// Tell gives clients the changes of a process at another pod that serves the principal.
func (p *Principals) Tell(principal string, changed subscription.Filter) {
	p.common.hub.tell(principal, func(honored subscription.Filter) subscription.Filter { return honored.Among(changed) })
}

// TellMissed tells clients that all of this may have changed at another pod.
func (p *Principals) TellMissed(principal string, missed subscription.Filter) {
	p.common.hub.tell(principal, missed.And)
}

// Observe has an Observer hear of the changes of the processes of this pod, until stop is called. It returns when the
// processes that run know of it or do not agree, or the context ends. running says for which Wants there is a process.
func (p *Principals) Observe(ctx context.Context, wants []subscription.Want, o subscription.Observer) (running []bool, stop func(), err error) {
	return p.common.hub.observe(ctx, wants, o)
}
