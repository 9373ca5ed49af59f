package tolegacy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

const methodListen = subscription.MethodListen

// failure is why there is no subscription: what the server said, or else an error.
type failure struct {
	answer session.Message
	err    error
}

// to is the failure as the answer to a request of the client's.
func (f *failure) to(id []byte) []byte {
	if f.err != nil {
		return rpc.AppendError(nil, id, rpc.CodeInternal, "the server does not take subscriptions now: "+f.err.Error(), nil)
	}
	return translateError(f.answer, id)
}

// isNoMethod says whether the server does not have subscriptions at all (N-07).
func (f *failure) isNoMethod() bool {
	code := rpc.Lookup(f.answer.Bytes, f.answer.Envelope.Error, "code").Of(f.answer.Bytes)
	return string(code) == strconv.Itoa(rpc.CodeMethodNotFound)
}

var (
	errListenEnded = errors.New("the server has ended the subscription")
	errListenBad   = errors.New("the server's answer to " + methodListen + " cannot be understood")
)

// readFailure reads the answer that ends a subscription.
func readFailure(last []byte) *failure {
	e, err := rpc.ScanLenient(last)
	switch {
	case err != nil:
		return &failure{err: errListenBad}
	case e.Error.Present():
		return &failure{answer: session.Message{Bytes: last, Envelope: e}}
	}
	return &failure{err: errListenEnded}
}

// filter is what a subscription asks for, for a client that is subscribed to the resources.
func (l *listener) filter(uris map[string]struct{}) subscription.Filter {
	return subscription.Filter{Lists: l.lists, URIs: slices.Sorted(maps.Keys(uris))}
}

// replace puts a subscription in the place of the one that there is. The old one ends
// when the server has agreed to the new one, so that nothing is missed.
func (l *listener) replace(filter subscription.Filter, wanted map[string]struct{}) *failure {
	exchange, agreed, failed := l.open(filter)
	if failed != nil {
		maps.DeleteFunc(l.uris, func(uri string, _ struct{}) bool { _, ok := wanted[uri]; return !ok })
		l.stale = true
		if l.current == nil {
			l.tryLater(failed)
		}
		return failed
	}
	maps.DeleteFunc(wanted, func(uri string, _ struct{}) bool {
		_, had := l.uris[uri]
		return !had && !slices.Contains(agreed.URIs, uri)
	})
	l.uris, l.stale = wanted, false
	l.exchange(exchange, agreed)
	return nil
}

// open asks for a subscription and waits for the server to agree. What the old one has to
// say waits meanwhile.
func (l *listener) open(filter subscription.Filter) (Exchange, *subscription.Filter, *failure) {
	limit := l.server.options.Limits.ListenTimeout
	ctx, cancel := context.WithTimeoutCause(l.server.ctx, limit, fmt.Errorf("it did not answer within %s", limit))
	defer cancel()
	exchange, err := l.server.options.Modern.Call(ctx, ownRequest(methodListen, `"notifications":`+filter.String()+`,`, l.server.identity()))
	if err != nil {
		return nil, nil, &failure{err: err}
	}
	for {
		message, last, err := await(ctx, exchange)
		switch {
		case err != nil:
			exchange.Release()
			return nil, nil, &failure{err: context.Cause(ctx)}
		case last:
			exchange.Release()
			return nil, nil, readFailure(message)
		}
		if honored := readAgreement(message); honored != nil {
			agreed := filter.And(*honored)
			return exchange, &agreed, nil
		}
	}
}

// readAgreement reads what the server honours of a subscription (N-02). It returns nil for
// any other message.
func readAgreement(message []byte) *subscription.Filter {
	e, err := rpc.ScanLenient(message)
	if err != nil || string(e.Method) != subscription.MethodAcknowledged {
		return nil
	}
	honored, _, _ := subscription.Parse(message, e.Params) // of what cannot be read nothing is honored
	return &honored
}

// exchange takes the new subscription in the place of the old one, and tells what either
// has to say by now. What both say is told once: whatever happened, it was before that.
func (l *listener) exchange(next Exchange, agreed *subscription.Filter) {
	var old [][]byte
	if l.current != nil {
		news, ended := drain(l.current)
		old, l.missed = news, l.missed || ended != nil
		l.release()
	}
	l.current, l.began = next, time.Now()
	if l.missed {
		old = append(old, l.everything(agreed)...)
		l.missed = false
	}
	fresh, ended := drain(next)
	l.tell(old, fresh)
	l.useless = agreed.IsEmpty()
	switch {
	case l.useless:
		l.release()
	case ended != nil:
		l.lose(ended)
	}
}

// everything are news of all that may have changed while nobody was told.
func (l *listener) everything(agreed *subscription.Filter) (news [][]byte) {
	missed := l.filter(l.uris)
	missed.Lists = agreed.Lists
	for method, uri := range missed.Each {
		text := []byte(`{"jsonrpc":"2.0","method":"` + method + `"`)
		if method == subscription.MethodUpdated {
			text = append(rpc.AppendString(append(text, `,"params":{"uri":`...), uri), '}')
		}
		news = append(news, append(text, '}'))
	}
	return news
}

// drain takes all that there is, and the answer, if that is there.
func drain(exchange Exchange) (news [][]byte, ended []byte) {
	for {
		message, last, ok := exchange.Take()
		switch {
		case !ok:
			return news, nil
		case last:
			return news, message
		}
		news = append(news, message)
	}
}

// tell gives the client news, and those of a second kind that are not among the first.
func (l *listener) tell(news, more [][]byte) {
	told := map[string]struct{}{}
	for _, message := range news {
		told[l.tellOne(message, nil)] = struct{}{}
	}
	for _, message := range more {
		l.tellOne(message, told)
	}
}

// tellOne gives the client one piece of news, without the tag of the subscription, unless
// it was told, or does not want to be. It returns what the news are about.
func (l *listener) tellOne(message []byte, told map[string]struct{}) (about string) {
	e, err := rpc.ScanLenient(message)
	if err != nil || e.Kind != rpc.Notification || !l.wants(string(e.Method), string(e.URI)) {
		l.server.metrics.DroppedMessages.Inc()
		return ""
	}
	about = string(e.Method) + " " + string(e.URI)
	if _, known := told[about]; known {
		return about
	}
	var edits rpc.Edits
	edits.Filter(message, e.Params, func(m rpc.Member) bool {
		return string(m.Name) != "_meta" || keepMeta(message, m.Value, &edits)
	})
	news := scanned(edits.Edited(message))
	news.Unrelated = true
	l.server.receive(news)
	return about
}

// wants says whether the client wants to be told. What is part of a resource is for the
// server to say, unless it was not told yet that the client wants less.
func (l *listener) wants(method, uri string) bool {
	switch {
	case method != subscription.MethodUpdated:
		return subscription.Filter{Lists: l.lists}.Matches(method, uri)
	case !l.stale:
		return true
	}
	return l.filter(l.uris).Matches(method, uri)
}
