package shared

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// topic is a resource that sessions subscribe to. The adapter subscribes at the child process for
// the first session, and unsubscribes for the last. It makes one change at a time, because a
// server may handle two requests in either order.
type topic struct {
	uri         string
	change      change                // in flight; while there is one, there are no subscribers
	subscribers map[*sessionView]bool // always true
	waiters     []*waiter             // for the child process to agree
}

// change is the method of the request that changes a subscription at the child process.
type change string

const (
	none          change = ""
	subscribing   change = "resources/subscribe"
	unsubscribing change = "resources/unsubscribe"
)

// waiter is a session's request to subscribe.
type waiter struct {
	view      *sessionView
	id        string
	withdrawn bool // the session has unsubscribed since
}

// subscribe handles a session's request to subscribe to a resource, or to unsubscribe.
func (v *sessionView) subscribe(ctx context.Context, id string, request session.Message) error {
	uri := string(request.Envelope.URI)
	switch {
	case uri == "": // the child process gives the better error
		return v.forward(ctx, id, request)
	case len(uri) > nameBytes:
		return v.refuse(id, rpc.CodeInvalidParams, "a resource's URI may have "+strconv.Itoa(nameBytes)+" bytes")
	}
	i := v.instance
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.awaitRoomLocked(ctx, v); err != nil {
		return err
	}
	if string(request.Envelope.Method) == string(subscribing) {
		i.subscribeLocked(v, id, uri, request)
	} else {
		i.unsubscribeLocked(v, id, uri, request)
	}
	return nil
}

func (i *instance) subscribeLocked(v *sessionView, id, uri string, request session.Message) {
	t := i.topics[uri]
	switch {
	case t != nil && t.subscribers[v]:
		v.push(success(id))
		return
	case len(v.subscriptions)+v.subscribing >= i.options.Subscriptions:
		i.metrics.SubscriptionRefusals.Inc()
		v.push(refusal(id, rpc.CodeInternal, "a session may have "+strconv.Itoa(i.options.Subscriptions)+" subscriptions"))
		return
	case t == nil:
		t = &topic{uri: uri, subscribers: map[*sessionView]bool{}}
		i.topics[uri] = t
	case len(t.subscribers) > 0:
		t.add(v)
		v.push(success(id))
		return
	}
	v.subscribing++
	t.waiters = append(t.waiters, &waiter{view: v, id: id})
	if t.change == none {
		i.changeLocked(subscribing, &call{view: v, token: tokenOf(request), topic: t}, &request)
	}
}

func (i *instance) unsubscribeLocked(v *sessionView, id, uri string, request session.Message) {
	t := i.topics[uri]
	subscribed := t != nil && t.subscribers[v]
	if subscribed {
		t.remove(v)
	}
	if t != nil {
		for _, w := range t.waiters {
			w.withdrawn = w.withdrawn || w.view == v
		}
	}
	if !subscribed || len(t.subscribers) > 0 {
		v.push(success(id))
		return
	}
	i.changeLocked(unsubscribing, &call{view: v, id: id, token: tokenOf(request), topic: t}, &request)
}

func (t *topic) add(v *sessionView) {
	t.subscribers[v] = true
	v.subscriptions[t] = struct{}{}
}

func (t *topic) remove(v *sessionView) {
	delete(t.subscribers, v)
	delete(v.subscriptions, t)
}

// changeLocked sends the child process a request for a change: that of a client, or if it is nil,
// a new one.
func (i *instance) changeLocked(to change, c *call, request *session.Message) {
	c.number = i.NumberLocked()
	c.topic.change = to
	i.AddLocked(c.number, c)
	if request != nil {
		i.PostLocked(toProcess(*request, c.number))
	} else {
		i.PostRequestLocked(c.number, string(to), `"uri":`+string(rpc.AppendString(nil, c.topic.uri)))
	}
}

// settleLocked takes the child process's answer to a change, answers the sessions that wait for
// it, and makes the next change if one is due.
func (i *instance) settleLocked(c *call, message session.Message) {
	t := c.topic
	subscribed := t.change == subscribing
	t.change = none
	if !subscribed {
		if c.view != nil {
			c.view.push(answerFor(message, c.id))
		}
		if slices.ContainsFunc(t.waiters, (*waiter).wants) {
			i.changeLocked(subscribing, &call{topic: t}, nil)
			return
		}
	}
	agreed := subscribed && message.Envelope.Result.Present()
	for _, w := range t.waiters {
		answer := success(w.id) // the session withdrew before the adapter subscribed
		if subscribed {
			answer = answerFor(message, w.id)
		}
		w.view.subscribing--
		w.view.push(answer)
		if agreed && w.wants() {
			t.add(w.view)
		}
	}
	t.waiters = nil
	switch {
	case len(t.subscribers) > 0:
	case agreed: // all sessions that waited have withdrawn or ended
		i.changeLocked(unsubscribing, &call{topic: t}, nil)
	default:
		delete(i.topics, t.uri)
	}
}

func (w *waiter) wants() bool { return !w.withdrawn && !w.view.closed }

// receiveUpdate sends an update of a resource to its subscribers, and to those of the resources
// that it is part of.
func (i *instance) receiveUpdate(message session.Message) {
	update := mux.Keep(message)
	audience := map[*sessionView]bool{}
	i.mu.Lock()
	defer i.mu.Unlock()
	for uri := range subscription.Wholes(string(message.Envelope.URI), nameBytes) {
		if t := i.topics[uri]; t != nil {
			t.addAudience(audience)
		}
	}
	for v := range audience {
		v.push(update)
	}
	if len(audience) == 0 {
		i.metrics.UnroutedMessages.Inc()
	}
}

// addAudience adds the sessions that get an update of the resource: the subscribers, and the
// waiters while the adapter subscribes, because a server may send an update before its answer.
func (t *topic) addAudience(to map[*sessionView]bool) {
	maps.Copy(to, t.subscribers)
	if t.change != subscribing {
		return
	}
	for _, w := range t.waiters {
		if w.wants() {
			to[w.view] = true
		}
	}
}
