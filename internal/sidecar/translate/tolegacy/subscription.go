package tolegacy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// failed is the answer for the case that there is no subscription for a reason.
func failed(reason error) *session.Message {
	m := scanned(rpc.AppendError(nil, nil, rpc.CodeInternal, "the server does not take subscriptions now: "+reason.Error(), nil))
	return &m
}

var (
	errListenEnded = errors.New("the server has ended the subscription")
	errListenBad   = errors.New("the server's answer to " + subscription.MethodListen + " cannot be understood")
)

// readFailure reads the answer that ends a subscription. It returns an error.
func readFailure(last []byte) *session.Message {
	answer := scanned(last)
	switch {
	case answer.Envelope.Kind == 0:
		return failed(errListenBad)
	case answer.Envelope.Error.Present():
		return &answer
	}
	return failed(errListenEnded)
}

// filter is what a subscription asks for, for a client that is subscribed to the resources.
func (l *listener) filter(uris uriSet) subscription.Filter {
	return subscription.Filter{Lists: l.lists, URIs: slices.Sorted(maps.Keys(uris))}
}

// replace makes a new subscription. The old one ends when the server has acknowledged the new
// one, so that the client misses nothing.
func (l *listener) replace(filter subscription.Filter, wanted uriSet) (failure *session.Message) {
	exchange, honored, failure := l.open(filter)
	if failure != nil {
		maps.DeleteFunc(l.uris, func(uri string, _ struct{}) bool { _, ok := wanted[uri]; return !ok })
		l.stale = true
		if l.current == nil {
			l.tryLater(failure)
		}
		return failure
	}
	maps.DeleteFunc(wanted, func(uri string, _ struct{}) bool {
		_, had := l.uris[uri]
		return !had && !slices.Contains(honored.URIs, uri)
	})
	l.uris, l.stale = wanted, false
	l.switchTo(exchange, honored)
	return nil
}

// open makes a subscription and waits for the server to acknowledge it. Messages of the old one
// wait meanwhile.
func (l *listener) open(filter subscription.Filter) (exchange Exchange, honored subscription.Filter, failure *session.Message) {
	limit := l.server.options.Limits.ListenTimeout
	ctx, cancel := context.WithTimeoutCause(l.server.ctx, limit, fmt.Errorf("it did not answer within %s", limit))
	defer cancel()
	exchange, err := l.server.options.Modern.Call(ctx, ownRequest(subscription.MethodListen, `"notifications":`+filter.String()+`,`, l.server.client.identity))
	if err != nil {
		return nil, honored, failed(err)
	}
	for {
		message, last, err := await(ctx, exchange)
		switch {
		case err != nil:
			exchange.Release()
			return nil, honored, failed(context.Cause(ctx))
		case last:
			exchange.Release()
			return nil, honored, readFailure(message)
		}
		if e := scanned(message).Envelope; string(e.Method) == subscription.MethodAcknowledged {
			honored, _, _ = subscription.Parse(message, e.Params) // a filter that cannot be read honors nothing (N-02)
			return exchange, filter.And(honored), nil
		}
	}
}

// switchTo puts the new subscription in the place of the old one, and gives the client the
// notifications that either has by now. A change that both announce is announced once: it
// happened before.
func (l *listener) switchTo(next Exchange, honored subscription.Filter) {
	var old [][]byte
	if l.current != nil {
		events, ended := drain(l.current)
		old, l.missed = events, l.missed || ended != nil
		l.release()
	}
	l.current, l.began = next, time.Now()
	if l.missed {
		old = append(old, l.everything(honored)...)
		l.missed = false
	}
	fresh, ended := drain(next)
	l.notify(old, fresh)
	l.useless = honored.IsEmpty()
	switch {
	case l.useless:
		l.release()
	case ended != nil:
		l.lose(ended)
	}
}

// everything are notifications of all changes that may have happened without a subscription.
func (l *listener) everything(honored subscription.Filter) (events [][]byte) {
	missed := l.filter(l.uris)
	missed.Lists = honored.Lists
	for method, uri := range missed.Each {
		events = append(events, subscription.Notification(method, uri, ""))
	}
	return events
}

// drain takes all messages that have arrived, and the answer, if it has.
func drain(exchange Exchange) (events [][]byte, ended []byte) {
	for {
		message, last, ok := exchange.Take()
		switch {
		case !ok:
			return events, nil
		case last:
			return events, message
		}
		events = append(events, message)
	}
}

// notify gives the client notifications, and of those in more the ones that announce other
// changes.
func (l *listener) notify(events, more [][]byte) {
	announced := map[string]struct{}{}
	for _, message := range events {
		announced[l.notifyOf(message, nil)] = struct{}{}
	}
	for _, message := range more {
		l.notifyOf(message, announced)
	}
}

// notifyOf gives the client one notification, without the id of the subscription, unless its
// change was announced or the client does not want it. It returns the change.
func (l *listener) notifyOf(message []byte, announced map[string]struct{}) (change string) {
	e := scanned(message).Envelope
	if e.Kind != rpc.Notification || !l.wants(string(e.Method), string(e.URI)) {
		l.server.metrics.DroppedMessages.Inc()
		return ""
	}
	change = string(e.Method) + " " + string(e.URI)
	if _, known := announced[change]; known {
		return change
	}
	var edits rpc.Edits
	edits.Filter(message, e.Params, func(m rpc.Member) bool {
		return string(m.Name) != "_meta" || keepMeta(message, m.Value, &edits)
	})
	event := scanned(edits.Edited(message))
	event.Unrelated = true
	l.server.receive(event)
	return change
}

// wants says whether the client wants a notification. The server decides which resources are
// part of another, unless it does not know yet that the client wants less.
func (l *listener) wants(method, uri string) bool {
	switch {
	case method != subscription.MethodUpdated:
		return subscription.Filter{Lists: l.lists}.Matches(method, uri)
	case !l.stale:
		return true
	}
	return l.filter(l.uris).Matches(method, uri)
}
