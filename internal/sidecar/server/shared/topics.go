package shared

import (
	"context"
	"slices"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// topic is a resource that sessions are subscribed to, or want to be. The process is
// subscribed once, for the first of them, and unsubscribed for the last. It is asked
// for one change at a time, because nothing says that it makes two in order.
type topic struct {
	uri       string
	change    change // while there is one nobody follows
	followers map[*view]struct{}
	waiters   []*waiter // for the process to agree
}

// change is what the process has been asked for and has not answered yet.
type change uint8

const (
	none change = iota
	subscribing
	unsubscribing
)

// waiter is a session's request to be subscribed.
type waiter struct {
	view      *view
	id        string
	withdrawn bool // the session has unsubscribed since
}

// follow subscribes a session to a resource or ends that.
func (v *view) follow(ctx context.Context, id string, request session.Message) error {
	uri := string(request.Envelope.URI)
	switch {
	case uri == "": // the process knows best what to say to that
		return v.forward(ctx, id, request)
	case len(uri) > nameBytes:
		return v.refuse(id, rpc.CodeInvalidParams, "a resource's URI may have "+strconv.Itoa(nameBytes)+" bytes")
	}
	r := v.run
	r.mu.Lock()
	if err := r.awaitOpenLocked(ctx, v); err != nil {
		r.mu.Unlock()
		return err
	}
	var local *session.Message
	if string(request.Envelope.Method) == "resources/subscribe" {
		local = r.subscribeLocked(v, id, uri, request)
	} else {
		local = r.unsubscribeLocked(v, id, uri, request)
	}
	slow := local != nil && v.push(*local)
	r.mu.Unlock()
	if slow {
		v.endSlow()
	}
	return nil
}

// subscribeLocked returns the answer if it does not take the process to give it.
func (r *run) subscribeLocked(v *view, id, uri string, request session.Message) *session.Message {
	t := r.topics[uri]
	if t != nil {
		if _, follows := t.followers[v]; follows {
			return agreement(id)
		}
	}
	if len(v.following)+v.waits >= r.options.Subscriptions {
		r.metrics.SubscriptionRefusals.Inc()
		refused := refusal(id, rpc.CodeInternal, "a session may have "+strconv.Itoa(r.options.Subscriptions)+" subscriptions")
		return &refused
	}
	if t == nil {
		t = &topic{uri: uri, followers: map[*view]struct{}{}}
		r.topics[uri] = t
	}
	if len(t.followers) > 0 {
		t.add(v)
		return agreement(id)
	}
	v.waits++
	t.waiters = append(t.waiters, &waiter{view: v, id: id})
	if t.change == none {
		c := &call{number: r.NumberLocked(), view: v, token: tokenOf(request), topic: t}
		r.changeLocked(subscribing, c, toProcess(request, c.number))
	}
	return nil
}

func (r *run) unsubscribeLocked(v *view, id, uri string, request session.Message) *session.Message {
	t := r.topics[uri]
	if t == nil {
		return agreement(id) // it may be somebody else's, or nobody's: it is not this session's
	}
	for _, w := range t.waiters {
		w.withdrawn = w.withdrawn || w.view == v
	}
	if _, follows := t.followers[v]; !follows {
		return agreement(id)
	}
	t.remove(v)
	if len(t.followers) > 0 {
		return agreement(id)
	}
	c := &call{number: r.NumberLocked(), view: v, id: id, token: tokenOf(request), topic: t}
	r.changeLocked(unsubscribing, c, toProcess(request, c.number))
	return nil
}

func agreement(id string) *session.Message {
	agreed := success(id)
	return &agreed
}

func (t *topic) add(v *view) {
	t.followers[v] = struct{}{}
	v.following[t] = struct{}{}
}

func (t *topic) remove(v *view) {
	delete(t.followers, v)
	delete(v.following, t)
}

// leaveLocked is for a session that has ended.
func (r *run) leaveLocked(v *view, t *topic) {
	t.remove(v)
	if len(t.followers) == 0 {
		r.changeAloneLocked(t, unsubscribing)
	}
}

// changeLocked asks the process for a change.
func (r *run) changeLocked(to change, c *call, text []byte) {
	c.topic.change = to
	r.AddLocked(c.number, c)
	r.PostLocked(text)
}

// changeAloneLocked asks for a change that no client's request can be forwarded for.
func (r *run) changeAloneLocked(t *topic, to change) {
	method := "resources/subscribe"
	if to == unsubscribing {
		method = "resources/unsubscribe"
	}
	c := &call{number: r.NumberLocked(), topic: t}
	t.change = to
	r.AddLocked(c.number, c)
	r.PostRequestLocked(c.number, method, `"uri":`+string(rpc.AppendString(nil, t.uri)))
}

// settleLocked takes the process's answer to a change, tells those who wait for it,
// and asks for the next change if one is due. It returns the sessions that are slow.
func (r *run) settleLocked(c *call, message session.Message) (slow []*view) {
	t := c.topic
	subscribed := t.change == subscribing
	t.change = none
	agreed := subscribed && message.Envelope.Result.Present()
	if !subscribed {
		if c.view != nil {
			slow = c.view.pushOpenLocked(slow, answerFor(message, c.id))
		}
		if slices.ContainsFunc(t.waiters, (*waiter).wants) {
			r.changeAloneLocked(t, subscribing)
			return slow
		}
	}
	for _, w := range t.waiters {
		told := *agreement(w.id) // to what was withdrawn before the process was asked
		if subscribed {
			told = answerFor(message, w.id)
		}
		w.view.waits--
		slow = w.view.pushOpenLocked(slow, told)
		if agreed && w.wants() {
			t.add(w.view)
		}
	}
	t.waiters = nil
	r.tidyLocked(t, agreed)
	return slow
}

// tidyLocked ends a topic that nobody follows.
func (r *run) tidyLocked(t *topic, subscribed bool) {
	switch {
	case len(t.followers) > 0:
	case subscribed: // those who wanted it have gone
		r.changeAloneLocked(t, unsubscribing)
	default:
		delete(r.topics, t.uri)
	}
}

// pushOpenLocked is push unless the session has ended, and adds it to those that are
// slow if it is.
func (v *view) pushOpenLocked(slow []*view, message session.Message) []*view {
	if !v.closed && v.push(message) {
		slow = append(slow, v)
	}
	return slow
}

func (w *waiter) wants() bool { return !w.withdrawn && !w.view.closed }

// receiveUpdate tells the subscribers of a resource, and those of one that it is part of.
func (r *run) receiveUpdate(message session.Message) {
	update := kept(message)
	told := map[*view]struct{}{}
	var slow []*view
	r.mu.Lock()
	for uri := range subscription.Wholes(string(message.Envelope.URI), nameBytes) {
		t := r.topics[uri]
		if t == nil {
			continue
		}
		for v := range t.audience() {
			if _, already := told[v]; already || v.closed {
				continue
			}
			told[v] = struct{}{}
			if v.push(update) {
				slow = append(slow, v)
			}
		}
	}
	r.mu.Unlock()
	endSlow(slow)
	if len(told) == 0 {
		r.metrics.UnroutedMessages.Inc()
	}
}

// audience yields the followers, and those who will be once the process has said
// so: it may have news before it answers.
func (t *topic) audience() func(yield func(*view) bool) {
	return func(yield func(*view) bool) {
		for v := range t.followers {
			if !yield(v) {
				return
			}
		}
		if t.change != subscribing {
			return
		}
		for _, w := range t.waiters {
			if w.wants() && !yield(w.view) {
				return
			}
		}
	}
}
