package tomodern

import (
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// mostShort is how many processes in a row may have the subscriptions for less than mux.Lasting,
// before the adapter ends the subscriptions.
const mostShort = 3

func uriParam(uri string) string { return `"uri":` + string(rpc.AppendString(nil, uri)) }

// agreed waits for the answer to a request of the adapter, and says whether it is a result.
func (p *process) agreed(answered <-chan session.Message) bool {
	answer, err := p.Await(p.server.ctx, answered)
	return err == nil && answer.Envelope.Result.Present()
}

// subscribeLocked subscribes to a resource for the first time.
func (g *group) subscribeLocked(t *topic) {
	p := g.subscriber
	answered := p.AskLocked("resources/subscribe", uriParam(t.uri), topicTimeout)
	go func() {
		ok := p.agreed(answered)
		g.server.mu.Lock()
		t.ok = ok
		g.server.mu.Unlock()
		close(t.ready)
	}()
}

// dropLocked notes that a topic has one user less.
func (g *group) dropLocked(t *topic) {
	t.users--
	if t.users > 0 {
		return
	}
	delete(g.topics, t.uri)
	g.topicBytes -= len(uriParam(t.uri))
	if g.subscriber != nil && t.ok {
		g.subscriber.AskLocked("resources/unsubscribe", uriParam(t.uri), topicTimeout) // any answer will do
	}
}

// subscriberEndedLocked has another process take over the subscriptions of one that has ended.
func (g *group) subscriberEndedLocked(p *process) {
	if g.subscriber != p {
		return
	}
	g.subscriber = nil
	if len(g.listens) == 0 || g.server.closed {
		return
	}
	if time.Since(g.subscribedSince) >= mux.Lasting {
		g.shortSubscribers = 0
	}
	g.shortSubscribers++
	if g.shortSubscribers > mostShort {
		g.failListensLocked(p.DeadLocked())
		return
	}
	g.users++
	go g.replaceSubscriber()
}

func (g *group) replaceSubscriber() {
	defer g.leave()
	s := g.server
	p, err := g.acquire(s.ctx, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		defer p.releaseLocked(nil)
		err = p.DeadLocked()
	}
	switch {
	case g.subscriber != nil: // a new client has brought one
	case err != nil:
		g.failListensLocked(err)
	case len(g.listens) > 0:
		g.takeOverLocked(p)
	}
}

// takeOverLocked has a process take over the group's subscriptions. Once it has subscribed to
// all resources, the adapter tells clients that each may have changed meanwhile.
func (g *group) takeOverLocked(p *process) {
	g.subscriber, g.subscribedSince = p, time.Now()
	if len(g.listens) == 0 {
		g.shortSubscribers = 0 // of earlier clients
		return
	}
	var asked []<-chan session.Message
	for _, t := range g.topics {
		if t.ok { // or else its own request is in flight, or has failed
			asked = append(asked, p.AskLocked("resources/subscribe", uriParam(t.uri), topicTimeout))
		}
	}
	go func() {
		for _, answered := range asked { // which all have the same time
			_ = p.agreed(answered) // or else the client misses changes of one resource
		}
		p.awaitStream(p.server.ctx)
		g.server.mu.Lock()
		defer g.server.mu.Unlock()
		if g.subscriber == p {
			g.notifyAllLocked()
		}
	}()
}

// notifyAllLocked tells clients that everything may have changed.
func (g *group) notifyAllLocked() {
	for l := range g.listens {
		if !l.acknowledged {
			continue
		}
		for method, uri := range l.filter.Each {
			l.to.Notify(subscription.Notification(method, uri, subscription.Tag(l.to.ID())))
		}
	}
}

// failListensLocked ends subscriptions that no process has any more. The clients get an error,
// because they have to subscribe again.
func (g *group) failListensLocked(reason error) {
	for l := range g.listens {
		l.failed = reason
		g.server.leaveLocked(l)
		if l.acknowledged {
			refuse(l.to, rpc.CodeInternal, "the subscription has ended: "+reason.Error())
		}
	}
}
