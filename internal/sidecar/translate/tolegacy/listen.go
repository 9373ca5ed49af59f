package tolegacy

import (
	"bytes"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// lasting is how long a subscription must have lasted for its end to be no reason to wait
// longer for the next. It is longer than mux.Lasting, because after each next one the client
// asks for all lists again.
const lasting = 30 * time.Second

// listener has one subscription at the modern server for all that the session wants to
// know: every list that the server tells changes of, and the resources that the client is
// subscribed to. One goroutine does everything; it runs from when there first is something.
type listener struct {
	server *Server
	lists  subscription.Set // that the server tells changes of; known before it runs
	wake   chan struct{}

	mu      sync.Mutex
	running bool
	queue   []change // as many as the session has calls in flight, at most

	// Of the goroutine.
	uris    map[string]struct{} // that the client is subscribed to
	current Exchange            // nil without a subscription
	began   time.Time
	stale   bool // it is about more than the client wants
	missed  bool // there was none since changes were last told
	useless bool // the server has no subscriptions, or nothing to tell
	retry   *time.Timer
	backOff mux.BackOff
}

// change is what the client wants to be different.
type change struct {
	id  []byte // of its request; none if it is only to begin
	uri string
	add bool

	refused   string // for which reason
	withdrawn bool   // the client has wanted something else since
}

func newListener(s *Server) *listener {
	return &listener{server: s, wake: make(chan struct{}, 1), uris: map[string]struct{}{}}
}

// begin has the client told of changes.
func (l *listener) begin() { l.enqueue(change{}) }

// subscribe subscribes the client to a resource, or ends that.
func (s *Server) subscribe(request session.Message) error {
	id, uri := request.Envelope.ID.Of(request.Bytes), string(request.Envelope.URI)
	add := string(request.Envelope.Method) == "resources/subscribe"
	switch {
	case uri == "":
		return s.refuse(id, rpc.CodeInvalidParams, "uri must name a resource")
	case len(uri) > nameBytes:
		return s.refuse(id, rpc.CodeInvalidParams, fmt.Sprintf("a resource's URI may have %d bytes", nameBytes))
	case !s.listen.enqueue(change{id: bytes.Clone(id), uri: uri, add: add}):
		return session.ErrEnded
	}
	return nil
}

func (l *listener) enqueue(c change) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running && !l.server.do(l.run) {
		return false
	}
	l.running = true
	if c.id != nil || len(l.queue) == 0 { // any change is a reason to begin
		l.queue = append(l.queue, c)
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return true
}

func (l *listener) run() {
	l.retry = time.NewTimer(lasting)
	l.retry.Stop()
	defer l.retry.Stop()
	defer l.release()
	for {
		var ready <-chan struct{}
		if l.current != nil {
			ready = l.current.Ready()
		}
		select {
		case <-l.server.ctx.Done():
			return
		case <-l.wake:
			l.mu.Lock()
			changes := l.queue
			l.queue = nil
			l.mu.Unlock()
			l.change(changes)
		case <-ready:
			news, ended := drain(l.current)
			l.tell(news, nil)
			if ended != nil {
				l.lose(ended)
			}
		case <-l.retry.C:
			l.change(nil)
		}
	}
}

func (l *listener) release() {
	if l.current != nil {
		l.current.Release()
		l.current = nil
	}
}

// change makes changes, with one subscription for all of them, and answers the requests
// for them.
func (l *listener) change(changes []change) {
	wanted := maps.Clone(l.uris)
	asked := false
	for i := range changes {
		c := &changes[i]
		_, has := wanted[c.uri]
		switch {
		case c.id == nil:
		case !c.add:
			delete(wanted, c.uri)
		case !has && len(wanted) >= l.server.options.Limits.Subscriptions:
			l.server.metrics.SubscriptionRefusals.Inc()
			c.refused = fmt.Sprintf("a session may have %d subscriptions", l.server.options.Limits.Subscriptions)
		default:
			wanted[c.uri] = struct{}{}
			asked = asked || !has
		}
	}
	for i := range changes {
		_, isWanted := wanted[changes[i].uri]
		changes[i].withdrawn = !isWanted
	}
	failed := l.arrange(wanted, asked)
	for _, c := range changes {
		if c.id != nil {
			l.conclude(c, failed)
		}
	}
}

// arrange has the subscription be about these resources. It is left alone if it is already,
// and if the server has none, unless the client asks for a resource.
func (l *listener) arrange(wanted map[string]struct{}, asked bool) (failed *failure) {
	same := maps.Equal(wanted, l.uris) && !l.stale
	switch filter := l.filter(wanted); {
	case filter.IsEmpty():
		l.release()
		l.uris, l.stale = wanted, false
	case l.current != nil && same, l.useless && !asked:
		l.uris = wanted
	default:
		return l.replace(filter, wanted)
	}
	return nil
}

// conclude answers the request for a change. One that was taken back since is granted.
func (l *listener) conclude(c change, failed *failure) {
	var answer []byte
	_, has := l.uris[c.uri]
	switch {
	case c.refused != "":
		answer = rpc.AppendError(nil, c.id, rpc.CodeInternal, c.refused, nil)
	case !c.add || c.withdrawn || has:
		answer = rpc.AppendResult(nil, c.id, []byte("{}"))
	case failed != nil:
		answer = failed.to(c.id)
	default:
		answer = rpc.AppendError(nil, c.id, rpc.CodeInvalidParams, "the server does not tell changes of this resource", nil)
	}
	l.server.deliver(answer, nil)
}

// lose is for a subscription that has ended without our doing. What the server says to
// the next one tells whether there is any use in it.
func (l *listener) lose(last []byte) {
	l.server.metrics.LostListens.Inc()
	l.release()
	l.missed = true
	if time.Since(l.began) >= lasting {
		l.backOff.Reset()
	}
	l.tryLater(readFailure(last))
}

// tryLater has a subscription made again in some time, unless there is no use in that.
func (l *listener) tryLater(because *failure) {
	if l.useless = because.isNoMethod(); l.useless {
		return
	}
	l.retry.Reset(l.backOff.Failed(nil, mux.Background))
}
