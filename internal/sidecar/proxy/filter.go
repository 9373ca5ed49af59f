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
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/proxy/handle"
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
	rights := x.r.Caller.Rights()
	switch {
	case rights == nil:
		return nil
	case x.method != "" && rights.Filters([]byte(x.method)):
		return func(answer []byte, e *rpc.Envelope) []byte { return filterBoth(rights, x.method, answer, e) }
	case !rights.FiltersAny(), x.r.Method == http.MethodPost && !remote.IsEvents(header) && !asksForList(x.r, rights):
		return nil
	}
	return rights.FilterAny
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

// relayFiltered is relay for an answer that the client may see only in part. Whatever status and type the
// answer has, nothing of it passes unread.
func (x *exchange) relayFiltered(ctx context.Context, cancel context.CancelCauseFunc, response *http.Response, shown filter) {
	response.Header.Del("Content-Length")
	if response.Header.Get("Content-Encoding") != "" { // the server was asked for none
		x.unfiltered()
		return
	}
	if remote.IsEvents(response.Header) {
		x.relayEvents(ctx, cancel, response, shown)
		return
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, x.proxy.AnswerBytes+1))
	if err != nil && context.Cause(ctx) != nil {
		x.fail(ctx, err)
		return
	}
	filtered, ok := x.apply(body, shown)
	switch {
	case err != nil || int64(len(body)) > x.proxy.AnswerBytes, !ok && response.StatusCode < http.StatusBadRequest:
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

// relayEvents filters each event of a stream. An event that is no message ends the stream, and the client
// sees that it broke off.
func (x *exchange) relayEvents(ctx context.Context, cancel context.CancelCauseFunc, response *http.Response, shown filter) {
	write, end := x.begin(response, func() { cancel(errClientSlow) })
	reader := rpc.NewEventReader(response.Body, int(x.proxy.AnswerBytes))
	reader.WithPriming()
	var text []byte
	for {
		event, err := reader.Next()
		if err == nil {
			text, err = x.appendEvent(text[:0], event, reader.Retry(), shown)
		}
		if err == nil && len(text) > 0 {
			err = toClient(write).send(text)
		}
		if err != nil {
			x.relayed(ctx, endOf(err), end())
			return
		}
	}
}

// appendEvent appends what the client may see of an event.
func (x *exchange) appendEvent(text []byte, event rpc.Event, retry time.Duration, shown filter) ([]byte, error) {
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
