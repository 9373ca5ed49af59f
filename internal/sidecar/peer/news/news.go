// Package news lets clients that listen at one pod hear of the changes of the processes of all pods of the server.
//
// A pod with such clients opens one stream to each other pod, and says what its clients want. The other pod has its own
// processes tell of that, and passes on which lists and resources have changed, without contents. Which client hears of it is
// decided where the client is. Clients of a pod that could not be reached for a while hear that everything may have changed.
// So do they when a pod is gone: its last news may be lost with it.
//
// A stream is never replaced before the next one has begun, and is read to its end then. What only the next one is about may
// have changed before, so clients hear of that, too. That also holds for the first stream.
package news

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// Path is where pods ask each other for news. The port for clients does not have it.
const Path = "/peer/news"

const (
	// gather is how long more clients may come before other pods hear what all of them want.
	gather = 50 * time.Millisecond
	// linger is how long the streams stay when the last client has gone. Clients that open their subscriptions again
	// cause no others then.
	linger = 5 * time.Second
	// refresh is how long other pods are asked for what no client wants any more, if some client still wants something.
	refresh = time.Minute
	// coalesce is how long what clients may have missed waits for more of the same from other pods.
	coalesce = 100 * time.Millisecond
	// pingInterval is the time between two requests by which a pod with a stream shows that it lives.
	pingInterval = 5 * time.Second
)

// Hub is where the processes of this pod and the clients that listen meet. *sessionless.Principals is one.
type Hub interface {
	// Wanted returns what clients listen to, sorted by principals, and a channel that closes when that changes.
	Wanted() (wants []subscription.Want, changed <-chan struct{})
	// Tell gives clients what has changed at another pod. It never waits for them.
	Tell(principal string, changed subscription.Filter)
	// TellMissed is Tell for what may have changed.
	TellMissed(principal string, missed subscription.Filter)
	// Observe has an Observer hear of the changes of the processes of this pod, until stop is called. It returns when
	// those that run know of it or do not agree, or the context ends. The Observer hears that everything may have changed
	// when a process agrees later. running says for which Wants there is a process. The error
	// says that this pod is about to end.
	Observe(ctx context.Context, wants []subscription.Want, o subscription.Observer) (running []bool, stop func(), err error)
}

// Options configure News.
type Options struct {
	Hub Hub
	// Others returns the other pods of the server, and Next a channel that closes when they change.
	Others func() []sessionid.Owner
	Next   func() <-chan struct{}
	// Relay carries the streams, and nothing else.
	Relay *relay.Relay
	// Memory has room for what other pods want; nil is no limit.
	Memory *budget.Budget
	Log    logr.Logger
}

// Limits are those of the Relay.
func Limits() relay.Limits { return relay.Limits{PingInterval: pingInterval} }

// News has the streams from and to other pods.
type News struct {
	options Options
	told    atomic.Int64 // streams to other pods
	asked   atomic.Int64 // Wants of other pods
	hears   atomic.Int64 // streams of other pods that have begun

	// Of the goroutine of Run.
	demand *demand // what other pods are asked for; nil if nothing
	since  time.Time
	links  map[sessionid.Owner]*link
	idle   time.Time // since when no client listens; zero if one does

	mu     sync.Mutex
	missed map[string]subscription.Filter // that clients hear of in a moment, by principal
	open   map[string]*heard              // what streams to other pods tell, by the ids of these
}

// demand is what other pods are asked for. It does not change.
type demand struct {
	wants []subscription.Want
	body  []byte
	newer chan struct{} // closed when there is another one
}

// New returns News, which Run sets to work.
func New(options Options) *News {
	return &News{options: options, links: map[sessionid.Owner]*link{}, missed: map[string]subscription.Filter{}, open: map[string]*heard{}}
}

// Streams is how many streams of other pods have begun.
func (n *News) Streams() int { return int(n.hears.Load()) }

// Wants is how many principals of other pods this one tells of changes, each counted for each pod.
func (n *News) Wants() int { return int(n.asked.Load()) }

// Run has a stream from each other pod for as long as clients listen. It ends with the context.
func (n *News) Run(ctx context.Context) {
	defer n.closeAll()
	for ctx.Err() == nil {
		next := n.options.Next() // before the list is read, so that none is missed
		wants, changed := n.options.Hub.Wanted()
		timer := time.NewTimer(n.arrange(ctx, wants))
		select {
		case <-changed:
			pause(ctx, gather)
		case <-next:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// arrange opens and closes streams for what clients want now. It returns when to look again.
func (n *News) arrange(ctx context.Context, wants []subscription.Want) (again time.Duration) {
	now := time.Now()
	switch {
	case len(wants) > 0:
		n.idle = time.Time{}
		n.want(wants, now)
	case n.demand == nil:
		return refresh
	case n.idle.IsZero():
		n.idle = now
	case now.Sub(n.idle) >= linger:
		n.closeAll()
		return refresh
	}
	n.follow(ctx)
	if n.idle.IsZero() {
		return refresh
	}
	return linger - now.Sub(n.idle)
}

// want changes the demand if clients want more, and sometimes if they want less.
func (n *News) want(wants []subscription.Want, now time.Time) {
	for i := range wants {
		wants[i].Lists = subscription.All() // so that the demand seldom changes
	}
	body, wants := encodeWants(wants)
	former := n.demand
	if former != nil && (slices.Equal(former.body, body) || covers(former.wants, wants) && now.Sub(n.since) < refresh) {
		return
	}
	n.demand, n.since = &demand{wants: wants, body: body, newer: make(chan struct{})}, now
	for _, l := range n.links {
		l.demand.Store(n.demand)
	}
	if former != nil {
		close(former.newer)
	}
}

// covers reports whether a demand asks for all that clients want.
func covers(asked, wanted []subscription.Want) bool {
	for _, w := range wanted {
		if !filterOf(asked, w.Principal).Includes(w.Filter) {
			return false
		}
	}
	return true
}

// filterOf is what is asked for a principal.
func filterOf(asked []subscription.Want, principal string) subscription.Filter {
	i, found := slices.BinarySearchFunc(asked, subscription.Want{Principal: principal}, subscription.CompareWants)
	if !found {
		return subscription.Filter{}
	}
	return asked[i].Filter
}

// follow has a link to each other pod, and to none that is gone.
func (n *News) follow(ctx context.Context) {
	gone := maps.Clone(n.links)
	for _, pod := range n.options.Others() {
		delete(gone, pod)
		if n.links[pod] == nil {
			n.links[pod] = n.link(ctx, pod)
		}
	}
	for pod, l := range gone {
		l.stop(errGone)
		delete(n.links, pod)
	}
}

// closeAll closes all streams.
func (n *News) closeAll() {
	for _, l := range n.links {
		l.stop(nil)
	}
	clear(n.links)
	n.demand = nil
}

// tellMissed tells clients, in a moment, that this may have changed.
func (n *News) tellMissed(principal string, missed subscription.Filter) {
	if missed.IsEmpty() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.missed) == 0 {
		time.AfterFunc(coalesce, n.tellAllMissed)
	}
	n.missed[principal] = n.missed[principal].Or(missed)
}

func (n *News) tellAllMissed() {
	n.mu.Lock()
	missed := n.missed
	n.missed = map[string]subscription.Filter{}
	n.mu.Unlock()
	for principal, filter := range missed {
		n.options.Hub.TellMissed(principal, filter)
	}
}

// pause waits, or until the context ends.
func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
