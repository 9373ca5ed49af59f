package tomodern

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// listen is a client's subscription.
type listen struct {
	to     sessionless.Recipient
	group  *group
	filter subscription.Filter // that the adapter honors
	topics []*topic

	// Guarded by the server's mutex.
	acknowledged bool // notifications come after that
	failed       error
}

// topic is a resource that a group's process is subscribed to.
type topic struct {
	uri   string
	users int
	ready chan struct{} // closed when the process has answered
	ok    bool          // it has agreed
}

const (
	// topicTimeout is for a process to agree to a subscription.
	topicTimeout = 10 * time.Second
	// topicBytes is how long the URIs of a group's resources can be in all. The adapter sends
	// them at once, and a process that has yet to read them must not seem to hang.
	topicBytes = queueBytes / 4
)

var errURIs = errors.New("as many resources are subscribed to as may be")

// listen opens a subscription. The group keeps a process for it that is subscribed to the
// resources of all clients.
func (s *Server) listen(ctx context.Context, g *group, r *request) error {
	f, _, err := subscription.Parse(r.Bytes, r.Envelope.Params)
	if err != nil {
		refuse(r.to, rpc.CodeInvalidParams, err.Error())
		return nil
	}
	return s.retryGone(func() error {
		p, err := g.acquire(ctx, nil)
		if err != nil {
			return err
		}
		defer p.release()
		return s.listenAt(ctx, p, r.to, f)
	})
}

// listenAt opens a subscription to those changes that a process announces.
func (s *Server) listenAt(ctx context.Context, p *process, to sessionless.Recipient, f subscription.Filter) error {
	for i := range f.Lists {
		f.Lists[i] = f.Lists[i] && p.offer.changes[i]
	}
	if !p.offer.subscribe {
		f.URIs = nil
	}
	l := &listen{to: to, group: p.group, filter: f}
	if f.IsEmpty() {
		l.acknowledge()
		l.complete()
		return nil
	}
	subscriber, err := s.enter(l, p)
	switch {
	case errors.Is(err, errGone):
		return err
	case err != nil:
		return s.busy(err)
	}
	for _, t := range l.topics {
		select {
		case <-t.ready:
		case <-ctx.Done():
			s.mu.Lock()
			s.leaveLocked(l)
			s.mu.Unlock()
			return fmt.Errorf("wait for the server to agree to a subscription: %w", ctx.Err())
		}
	}
	subscriber.awaitStream(ctx)
	return s.open(l)
}

// enter adds a client's subscription, and has the group's subscriber subscribe to new resources. It returns the
// subscriber, which is the process if the group had none.
func (s *Server) enter(l *listen, p *process) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := l.group
	added, size := 0, g.topicBytes
	for _, uri := range l.filter.URIs {
		if g.topics[uri] == nil {
			added++
			size += len(uriParam(uri))
		}
	}
	switch {
	case s.closed:
		return nil, fault.ErrDraining
	case len(g.topics)+added > s.options.Limits.URIs, size > topicBytes:
		return nil, errURIs
	case g.subscriber == nil && p.DeadLocked() != nil:
		return nil, errGone
	case g.subscriber == nil:
		g.takeOverLocked(p)
	}
	g.topicBytes = size
	g.listens[l] = struct{}{}
	for _, uri := range l.filter.URIs {
		t := g.topics[uri]
		if t == nil {
			t = &topic{uri: uri, ready: make(chan struct{})}
			g.topics[uri] = t
			g.subscribeLocked(t)
		}
		t.users++
		l.topics = append(l.topics, t)
	}
	return g.subscriber, nil
}

// open acknowledges a client's subscription (N-02), without resources that the process did not
// agree to.
func (s *Server) open(l *listen) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.failed != nil {
		return s.busy(l.failed)
	}
	agreed := l.topics[:0]
	l.filter.URIs = nil
	for _, t := range l.topics {
		if t.ok {
			agreed = append(agreed, t)
			l.filter.URIs = append(l.filter.URIs, t.uri)
		} else {
			l.group.dropLocked(t)
		}
	}
	l.topics = agreed
	l.acknowledge() // before any notification
	if l.filter.IsEmpty() {
		s.leaveLocked(l)
		l.complete()
		return nil
	}
	l.acknowledged = true
	s.listens[l.to] = l
	return nil
}

// leaveLocked ends a client's subscription. The code that calls it tells the client, if at all.
func (s *Server) leaveLocked(l *listen) {
	g := l.group
	delete(s.listens, l.to)
	if _, ok := g.listens[l]; !ok {
		return
	}
	delete(g.listens, l)
	for _, t := range l.topics {
		g.dropLocked(t)
	}
	l.topics = nil
	if len(g.listens) == 0 {
		if g.subscriber != nil {
			g.subscriber.lastUsed = time.Now()
		}
		g.subscriber = nil
	}
	g.tidyLocked()
}

// acknowledge sends the first message of a subscription.
func (l *listen) acknowledge() {
	l.to.Notify(subscription.Acknowledgement(l.filter, l.to.ID()))
}

// complete sends the last message of a subscription that ends in order (N-05).
func (l *listen) complete() {
	l.to.Answer(subscription.Completion(l.to.ID()), 0, "")
}
