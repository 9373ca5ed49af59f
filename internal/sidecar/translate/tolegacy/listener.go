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
// longer for the next. It is longer than mux.Lasting, because the client asks for all lists
// again after each new subscription.
const lasting = 30 * time.Second

// listener has one subscription at the modern server for the whole session: for every list
// whose changes the server announces, and for the resources that the client is subscribed to.
// One goroutine does the work. It starts with the first change.
type listener struct {
	server *Server
	lists  subscription.Set // whose changes the server announces; set before the goroutine runs
	wake   chan struct{}

	mu      sync.Mutex
	running bool
	queue   []change // as many as the session has calls in flight, at most

	// Of the goroutine.
	uris    uriSet   // that the client is subscribed to
	current Exchange // nil without a subscription
	began   time.Time
	stale   bool // the subscription is about more than the client wants
	missed  bool // there was no subscription since the client last got changes
	useless bool // the server has no subscriptions, or announces nothing
	retry   *time.Timer
	backOff mux.BackOff
}

type uriSet = map[string]struct{}

// change is a request of the client to subscribe to a resource, or to end that. The zero value
// only starts the listener.
type change struct {
	id  []byte // of the request
	uri string
	add bool

	refused   string // for this reason
	withdrawn bool   // a later request has undone it
}

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
	if c.id != nil || len(l.queue) == 0 { // any change starts the listener
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
			l.apply(changes)
		case <-ready:
			events, ended := drain(l.current)
			l.notify(events, nil)
			if ended != nil {
				l.lose(ended)
			}
		case <-l.retry.C:
			l.apply(nil)
		}
	}
}

func (l *listener) release() {
	if l.current != nil {
		l.current.Release()
		l.current = nil
	}
}

// apply makes changes, with one subscription for all of them, and answers the client's requests.
func (l *listener) apply(changes []change) {
	wanted := maps.Clone(l.uris)
	adds := false
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
			adds = adds || !has
		}
	}
	for i := range changes {
		_, isWanted := wanted[changes[i].uri]
		changes[i].withdrawn = !isWanted
	}
	failure := l.arrange(wanted, adds)
	for _, c := range changes {
		if c.id != nil {
			l.conclude(c, failure)
		}
	}
}

// arrange has the subscription be about these resources. A subscription that already is stays.
// If the server has no subscriptions, the adapter asks again only if the client adds a resource.
func (l *listener) arrange(wanted uriSet, adds bool) (failure *session.Message) {
	same := maps.Equal(wanted, l.uris) && !l.stale
	switch filter := l.filter(wanted); {
	case filter.IsEmpty():
		l.release()
		l.uris, l.stale = wanted, false
	case l.current != nil && same, l.useless && !adds:
		l.uris = wanted
	default:
		return l.replace(filter, wanted)
	}
	return nil
}

// conclude answers the request for a change. One that a later request has undone is granted.
func (l *listener) conclude(c change, failure *session.Message) {
	var answer []byte
	_, has := l.uris[c.uri]
	switch {
	case c.refused != "":
		answer = rpc.AppendError(nil, c.id, rpc.CodeInternal, c.refused, nil)
	case !c.add || c.withdrawn || has:
		answer = rpc.AppendResult(nil, c.id, []byte("{}"))
	case failure != nil:
		answer = translateError(*failure, c.id)
	default:
		answer = rpc.AppendError(nil, c.id, rpc.CodeInvalidParams, "the server does not announce changes of this resource", nil)
	}
	l.server.deliver(answer, nil)
}

// lose notes that the server has ended the subscription. The server's answer to the next one
// shows whether to go on.
func (l *listener) lose(last []byte) {
	l.server.metrics.LostListens.Inc()
	l.release()
	l.missed = true
	if time.Since(l.began) >= lasting {
		l.backOff.Reset()
	}
	l.tryLater(readFailure(last))
}

// tryLater has a subscription made again after some time, unless the server has none (N-07).
func (l *listener) tryLater(failure *session.Message) {
	if l.useless = rpc.ErrorCode(failure.Bytes, &failure.Envelope) == rpc.CodeMethodNotFound; !l.useless {
		l.retry.Reset(l.backOff.Failed(nil, mux.Background))
	}
}
