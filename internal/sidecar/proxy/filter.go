package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/handle"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// filter is what the client may see of an answer. It is nil if the answer needs no reading.
type filter func(answer []byte, e *rpc.Envelope) []byte

// filter returns the filter of an exchange for an answer with this header. It hides what the caller may not
// see of lists, and then binds handles.
func (x *exchange) filter(header http.Header) filter {
	lists := x.filterLists(header)
	switch {
	case !x.binds():
		return lists
	case lists != nil:
		return func(answer []byte, e *rpc.Envelope) []byte { return x.rebind(lists(answer, e)) }
	case remote.IsEvents(header), asks(x.r, handle.MethodListTasks):
		return x.bind // and nothing passes unread
	}
	return nil
}

// filterLists returns the filter of lists. Lists need one, and every stream of events: a server may repeat the
// answer to a list when a client resumes a stream, or put it on the stream of another request.
func (x *exchange) filterLists(header http.Header) filter {
	rights := x.rights()
	switch {
	case rights == nil:
		return nil
	case x.method != "" && rights.Filters([]byte(x.method)):
		return func(answer []byte, e *rpc.Envelope) []byte { return filterBoth(x.rights(), x.method, answer, e) }
	case remote.IsEvents(header):
	case !rights.FiltersAny(), x.r.Method == http.MethodPost && !asksForList(x.r, rights):
		return nil
	}
	return func(answer []byte, e *rpc.Envelope) []byte {
		if now := x.rights(); now.FiltersAny() {
			return now.FilterAny(answer, e)
		}
		return answer
	}
}

// rights returns what the caller may do now. The rules may change while the server works on the request, or
// while a stream is open.
func (x *exchange) rights() *rules.Rights {
	if x.r.Caller.Grant == nil {
		return nil
	}
	return x.r.Caller.Grant.Now().Rights
}

// filterBoth filters the answer to a list. The caller may see all of that list, and only a part of another one
// that the server puts into the same answer, or onto the same stream.
func filterBoth(rights *rules.Rights, method string, answer []byte, e *rpc.Envelope) []byte {
	if rights.FiltersAny() {
		answer = rights.FilterAny(answer, e)
		filtered, err := rpc.ScanLenient(answer)
		if err != nil { // only if the filter is wrong
			return rpc.AppendError(nil, nil, rpc.CodeInternal, errUnfiltered.Error(), nil)
		}
		e = &filtered
	}
	return rights.Filter(method, answer, e)
}

// asks reports whether a message of the request has the method.
func asks(r *edge.Request, method string) bool {
	return slices.ContainsFunc(r.Messages, func(m session.Message) bool { return string(m.Envelope.Method) == method })
}

func asksForList(r *edge.Request, rights *rules.Rights) bool {
	for i := range r.Messages {
		if rights.Filters(r.Messages[i].Envelope.Method) {
			return true
		}
	}
	return false
}

var errUnfiltered = errors.New("the server's answer cannot be filtered: it is not a message, or too large")

// unreadable is the beginning of errors of the adapter itself.
const unreadable = "the adapter cannot read the server's answer: "

// relayFiltered is relay for an answer that the client may see only in part. Whatever status and type the
// answer has, nothing of it passes unread. What the proxy holds meanwhile takes room of the budget.
func (x *exchange) relayFiltered(ctx context.Context, cancel context.CancelCauseFunc, response *http.Response, shown filter, room *budget.Account) {
	response.Header.Del("Content-Length")
	if response.Header.Get("Content-Encoding") != "" { // the server was asked for none
		x.unfiltered()
		return
	}
	if remote.IsEvents(response.Header) {
		x.relayEvents(ctx, cancel, response, shown, room)
		return
	}
	most := x.proxy.MessageBytes
	body, err := remote.ReadAll(io.LimitReader(response.Body, int64(most)+1), most, func(total int) error { return room.Reach(total, ctx.Done()) })
	switch {
	case err != nil && context.Cause(ctx) != nil:
		x.fail(ctx, err)
		return
	case errors.Is(err, budget.ErrNoRoom):
		x.proxy.Metrics.Refused.Inc()
		x.failInBand(unreadable + err.Error())
		return
	}
	filtered, ok := x.apply(body, shown)
	switch {
	case err != nil || len(body) > most, !ok && response.StatusCode < http.StatusBadRequest:
		x.unfiltered()
		return
	case !ok: // the status says what is wrong; the body could say anything
		filtered = rpc.AppendError(nil, x.id, rpc.CodeInternal, "the server refuses the request", nil)
	}
	passHeaders(x.w.Header(), response.Header)
	front.WriteJSON(x.w, response.StatusCode, filtered, x.proxy.WriteTimeout, nil)
}

// unfiltered answers in place of a server whose answer cannot be filtered.
func (x *exchange) unfiltered() {
	x.proxy.Metrics.Broken.Inc()
	x.failInBand(errUnfiltered.Error())
}

// apply filters a message, or a batch of messages. It returns false if the text is neither.
func (x *exchange) apply(text []byte, shown filter) ([]byte, bool) {
	if !rpc.IsBatch(text) {
		return applyTo(text, shown)
	}
	if x.r.Caller.Rights().Filters([]byte(x.method)) {
		return nil, false // a batch is no answer to one request for a list
	}
	batch := []byte{'['}
	err := rpc.Batch(text, func(message []byte) error {
		part, ok := applyTo(message, shown)
		if !ok {
			return errUnfiltered
		}
		if len(batch) > 1 {
			batch = append(batch, ',')
		}
		batch = append(batch, part...)
		return nil
	})
	return append(batch, ']'), err == nil
}

func applyTo(message []byte, shown filter) ([]byte, bool) {
	e, err := rpc.ScanLenient(message)
	if err != nil {
		return nil, false
	}
	if e.Kind == rpc.Response {
		message = shown(message, &e)
	}
	return message, true
}

// largeEvent is the size from which on an event takes room of the budget.
const largeEvent = 64 << 10

// relayEvents filters each event of a stream. It ends the stream at an event that is not a message, or for which the
// adapter has no room.
func (x *exchange) relayEvents(ctx context.Context, cancel context.CancelCauseFunc, response *http.Response, shown filter, room *budget.Account) {
	write, end := x.begin(response, func() { cancel(errClientSlow) })
	reader := rpc.NewEventReader(response.Body, x.proxy.MessageBytes)
	reader.WithPriming()
	reader.Bound(func(total int) error { return room.Reach(total, ctx.Done()) })
	var text []byte
	for {
		event, err := reader.Next()
		if size := cap(event.Data); size > largeEvent {
			room.Change(size) // until the client has it
		}
		if err == nil {
			text, err = x.appendEvent(text[:0], event, reader.Retry(), shown)
		}
		if err == nil && len(text) > 0 {
			err = toClient(write).send(text)
		}
		if err != nil {
			x.explain(ctx, write, err)
			x.relayed(ctx, endOf(err), end())
			return
		}
		if cap(text) > largeEvent {
			text = nil
		}
		room.Change(-int(room.Held()))
	}
}

// explain answers a call on its stream, if the adapter cannot hold an event, which most likely is the answer.
func (x *exchange) explain(ctx context.Context, write toClient, err error) {
	tooLarge := errors.Is(err, budget.ErrNoRoom) || errors.Is(err, rpc.ErrEventTooLarge)
	if x.id == nil || !tooLarge || context.Cause(ctx) != nil {
		return
	}
	answer := rpc.AppendError(nil, x.id, rpc.CodeInternal, unreadable+err.Error(), nil)
	_ = write.send(rpc.AppendEvent(nil, rpc.Event{Data: answer})) // the client has gone otherwise
}

// appendEvent appends what the client may see of an event.
func (x *exchange) appendEvent(text []byte, event rpc.Event, retry time.Duration, shown filter) ([]byte, error) {
	x.bindEvent(&event)
	switch {
	case len(event.Data) == 0: // without it, the client could not resume the stream
		text = append(append(append(text, "id: "...), event.ID...), '\n')
		if retry > 0 {
			text = strconv.AppendInt(append(text, "retry: "...), retry.Milliseconds(), 10)
			text = append(text, '\n')
		}
		return append(text, "data: \n\n"...), nil
	case event.Type != rpc.EventMessage:
		return text, nil // some servers send a sign of life, which no client reads
	}
	filtered, ok := x.apply(event.Data, shown)
	if !ok {
		return nil, errUnfiltered
	}
	event.Data = filtered
	return rpc.AppendEvent(text, event), nil
}

// endOf returns nil for the end of a stream.
func endOf(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
