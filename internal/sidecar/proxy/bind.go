package proxy

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/handle"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// binds reports whether handles in this exchange belong to its caller: the adapter has verified who that is,
// and the server has not learned it.
func (x *exchange) binds() bool { return x.r.Caller.Identity() != nil }

// sealsStates reports whether states in this exchange name their pod, although the adapter does not know who calls. In
// a session they need not: its id does.
func (x *exchange) sealsStates() bool {
	return !x.binds() && x.session == nil && rpc.TakesInput(x.method) && isStateless(x.r) && x.proxy.Handles.Binds(&x.r.Caller)
}

// claims checks the handles that the caller names. If one is not the caller's, it answers as servers do to one
// that they do not know, and the server gets nothing.
func (x *exchange) claims() bool {
	if !x.binds() && !x.sealsStates() {
		return true
	}
	if x.binds() && !x.claimEvent() {
		return false
	}
	for i := range x.r.Messages {
		message := &x.r.Messages[i]
		if err := x.proxy.Handles.Claim(&x.r.Caller, message.Bytes, &message.Envelope); err != nil {
			x.r.NoteForeign()
			status := http.StatusOK
			if x.id == nil { // there is no request for the error to answer
				status = http.StatusBadRequest
			}
			front.Refuse(x.w, status, x.id, rpc.CodeInvalidParams, err.Error())
			return false
		}
	}
	return true
}

// claimEvent checks the event after which the caller wants to resume a stream. Some servers find it in the
// streams of all sessions.
func (x *exchange) claimEvent() bool {
	given := x.r.Header.Get(front.HeaderLastEventID)
	if given == "" || x.r.Method != http.MethodGet {
		return true
	}
	own, ok := x.proxy.Handles.ClaimEvent(x.r.Caller.Principal, given)
	if !ok {
		x.r.NoteForeign()
		// Not 404: the client would take that for the end of the session.
		front.Refuse(x.w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, session.ErrUnknownEvent.Error())
		return false
	}
	x.resumes = own
	return true
}

// resume tells the server after which event the stream goes on, if the caller said so and may.
func (x *exchange) resume(header http.Header) {
	if !x.binds() {
		return
	}
	header.Del(front.HeaderLastEventID)
	if x.resumes != "" {
		header.Set(front.HeaderLastEventID, x.resumes)
	}
}

// bindEvent binds the id of an event to the caller.
func (x *exchange) bindEvent(event *rpc.Event) {
	if len(event.ID) > 0 && x.binds() {
		event.ID = x.proxy.Handles.BindEvent(x.r.Caller.Principal, event.ID)
	}
}

// bind is a filter that hides nothing, and binds handles to the caller.
func (x *exchange) bind(answer []byte, e *rpc.Envelope) []byte {
	return x.proxy.Handles.Bind(&x.r.Caller, answer, e)
}

// rebind is bind for an answer that a filter may have changed.
func (x *exchange) rebind(answer []byte) []byte {
	if !handle.Mentions(answer) {
		return answer
	}
	e, err := rpc.ScanLenient(answer)
	if err != nil { // only if the filter is wrong
		return rpc.AppendError(nil, nil, rpc.CodeInternal, errUnfiltered.Error(), nil)
	}
	return x.bind(answer, &e)
}

// bindBody binds the handles in an answer that is no stream. An answer that is not a message, that is too large,
// or that there is no room for, passes as it is: if there is a handle in it, the adapter refuses that later.
func (x *exchange) bindBody(response *http.Response, room *budget.Account) {
	if !isJSON(response.Header) || response.Header.Get("Content-Encoding") != "" {
		return
	}
	most := x.proxy.MessageBytes
	body, err := remote.ReadAll(io.LimitReader(response.Body, int64(most)+1), most, func(total int) error {
		if !room.Take(total - int(room.Held())) {
			return budget.ErrNoRoom
		}
		return nil
	})
	if err == nil && len(body) <= most && handle.Mentions(body) {
		if bound, ok := x.apply(bytes.Clone(body), x.bind); ok {
			body = bound
			response.ContentLength = int64(len(body))
			response.Header.Set("Content-Length", strconv.Itoa(len(body)))
		}
	}
	rest := io.Reader(response.Body)
	if err != nil && !errors.Is(err, budget.ErrNoRoom) {
		rest = broken{err}
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), response.Body}
}

// broken is the rest of an answer that breaks off.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

func isJSON(header http.Header) bool {
	mediaType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	return err == nil && mediaType == front.TypeJSON
}
