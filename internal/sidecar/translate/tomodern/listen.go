package tomodern

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// listen is a client's subscription.
type listen struct {
	to     sessionless.Recipient
	group  *group
	filter subscription.Filter // what is honoured of it
	topics []*topic

	// Guarded by the server's mutex.
	told   bool // what is honoured; news come after that
	failed error
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
	// topicBytes is how long the names of a group's resources can be in all. They are
	// sent at once, and must not look like what a process does not read.
	topicBytes = queueBytes / 4
)

var errURIs = errors.New("as many resources are subscribed to as may be")

// listen opens a subscription. The group keeps a process for it that is subscribed to
// the resources that clients ask for.
func (s *Server) listen(ctx context.Context, g *group, r *request) error {
	f, _, err := subscription.Parse(r.Bytes, r.Envelope.Params)
	if err != nil {
		refuse(r.to, rpc.CodeInvalidParams, err.Error())
		return nil
	}
	for try := 1; ; try++ {
		w, err := g.acquire(ctx, nil)
		if err != nil {
			return err
		}
		err = s.listenAt(ctx, w, r.to, f)
		w.release()
		switch {
		case !errors.Is(err, errGone):
			return err
		case try == tries:
			return s.busy(err)
		}
	}
}

// listenAt opens a subscription with what a process has of it.
func (s *Server) listenAt(ctx context.Context, w *worker, to sessionless.Recipient, f subscription.Filter) error {
	for i := range f.Lists {
		f.Lists[i] = f.Lists[i] && w.hello.changes[i]
	}
	if !w.hello.subscribe {
		f.URIs = nil
	}
	l := &listen{to: to, group: w.group, filter: f}
	if f.IsEmpty() {
		l.acknowledge()
		l.complete()
		return nil
	}
	switch err := s.enter(l, w); {
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
	return s.acknowledge(l)
}

// enter adds a listener, and has the process subscribe to what it does not know yet.
func (s *Server) enter(l *listen, w *worker) error {
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
		return fault.ErrDraining
	case len(g.topics)+added > s.options.Limits.URIs, size > topicBytes:
		return errURIs
	case g.holder == nil && w.DeadLocked() != nil:
		return errGone
	case g.holder == nil:
		g.takeOverLocked(w)
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
	return nil
}

// subscribeLocked subscribes to a resource for the first time.
func (g *group) subscribeLocked(t *topic) {
	w := g.holder
	answered := w.askLocked("resources/subscribe", uriParam(t.uri), topicTimeout)
	go func() {
		ok := w.agreed(answered)
		g.server.mu.Lock()
		t.ok = ok
		g.server.mu.Unlock()
		close(t.ready)
	}()
}

func uriParam(uri string) string { return `"uri":` + string(rpc.AppendString(nil, uri)) }

// agreed waits for the answer to a request of ours, and says whether it is a result.
func (w *worker) agreed(answered <-chan session.Message) bool {
	answer, err := w.Await(w.server.ctx, answered)
	return err == nil && answer.Envelope.Result.Present()
}

// acknowledge tells a client what is honoured of its subscription (N-02). What the
// process did not agree to is left out.
func (s *Server) acknowledge(l *listen) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.failed != nil {
		return s.busy(l.failed)
	}
	var kept []*topic
	l.filter.URIs = nil
	for _, t := range l.topics {
		if t.ok {
			kept = append(kept, t)
			l.filter.URIs = append(l.filter.URIs, t.uri)
		} else {
			l.group.dropLocked(t)
		}
	}
	l.topics = kept
	l.acknowledge() // before any news
	if l.filter.IsEmpty() {
		s.leaveLocked(l)
		l.complete()
		return nil
	}
	l.told = true
	s.listens[l.to] = l
	return nil
}

// dropLocked is for a topic with one user less.
func (g *group) dropLocked(t *topic) {
	t.users--
	if t.users > 0 {
		return
	}
	delete(g.topics, t.uri)
	g.topicBytes -= len(uriParam(t.uri))
	if g.holder != nil && t.ok {
		g.holder.askLocked("resources/unsubscribe", uriParam(t.uri), topicTimeout) // whatever it says to that
	}
}

// leaveLocked ends a subscription. Its client is told by whoever calls it, if at all.
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
		if g.holder != nil {
			g.holder.touched = time.Now()
		}
		g.holder = nil
	}
	g.tidyLocked()
}

// acknowledge sends the first message of a subscription.
func (l *listen) acknowledge() {
	l.to.Notify(notification(subscription.MethodAcknowledged, `"notifications":`+l.filter.String()+`,`, l.to.ID()))
}

// complete sends the last message of a subscription that ends in order (N-05).
func (l *listen) complete() {
	id := l.to.ID()
	l.to.Answer(rpc.AppendResult(nil, id, []byte(`{"resultType":"complete","_meta":{`+tag(id)+`}}`)), 0, "")
}
