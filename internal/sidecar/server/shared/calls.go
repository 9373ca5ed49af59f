package shared

import (
	"slices"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// errBusy says that the process has as many calls of all sessions as it may have.
var errBusy = fault.Busy("as many calls are in flight at the shared server as may be")

// call is a request at the process that has no answer yet.
type call struct {
	number uint64 // its id and progress token at the process
	view   *view  // whose it is; nil for one that changes a subscription
	id     string // as the client spelled it
	key    string // of all spellings of it
	token  string // of its progress, as the client spelled it

	cancelled bool
	topic     *topic // it changes a subscription
}

// cancelledCalls is how many cancelled calls of a session are remembered, for the
// answers that some servers give all the same. Most servers rightly give none.
const cancelledCalls = 64

// registerLocked makes a call of a session's known, so that its answer finds it.
func (r *run) registerLocked(c *call) error {
	v := c.view
	if old := v.calls[c.key]; old != nil {
		// The session has given it up, or it would not use the id again. Its
		// answer must not be taken for that of the new call.
		r.forgetLocked(old)
	}
	switch {
	case len(v.calls)-len(v.cancelled) >= r.options.Session.Calls:
		return session.ErrTooManyCalls
	case r.LenLocked() >= r.options.Calls && !r.evictLocked():
		return errBusy
	}
	r.AddLocked(c.number, c)
	v.calls[c.key] = c
	return nil
}

func (r *run) forgetLocked(c *call) {
	r.DropLocked(c.number)
	if c.view == nil || c.topic != nil {
		return
	}
	if c.view.calls[c.key] == c {
		delete(c.view.calls, c.key)
	}
	if c.cancelled {
		c.view.cancelled = slices.DeleteFunc(c.view.cancelled, func(other *call) bool { return other == c })
	}
}

// evictLocked forgets a call that was cancelled, if there is one.
func (r *run) evictLocked() bool {
	for v := range r.views {
		if len(v.cancelled) > 0 {
			r.forgetLocked(v.cancelled[0])
			return true
		}
	}
	return false
}

// cancelLocked notes that a client no longer waits for a call.
func (r *run) cancelLocked(c *call) {
	v := c.view
	c.cancelled = true
	v.cancelled = append(v.cancelled, c)
	if len(v.cancelled) > cancelledCalls {
		r.forgetLocked(v.cancelled[0])
	}
}

// toProcess is a client's request with the number in place of id and progress
// token. The token may be any value; null means that there is none.
func toProcess(request session.Message, number uint64) []byte {
	text := strconv.AppendUint(nil, number, 10)
	edits := []rpc.Edit{{Span: request.Envelope.ID, With: text}}
	if token := tokenOf(request); token != "" {
		edits = append(edits, rpc.Edit{Span: request.Envelope.ProgressToken, With: text})
	}
	return rpc.Edited(request.Bytes, edits...)
}

func tokenOf(request session.Message) string {
	token := string(request.Envelope.ProgressToken.Of(request.Bytes))
	if token == "null" {
		return ""
	}
	return token
}

// toClient is a message of the process's with one value as the client spelled it, and
// where that stands.
func toClient(message []byte, at rpc.Span, spelled string) ([]byte, rpc.Span) {
	text := rpc.Edited(message, rpc.Edit{Span: at, With: []byte(spelled)})
	return text, rpc.Span{Start: at.Start, End: at.Start + len(spelled)}
}

// answerFor is an answer of the process's with the client's id. Its envelope says how the
// call ended.
func answerFor(answer session.Message, id string) session.Message {
	e := &answer.Envelope
	edits := rpc.Edits{{Span: e.ID, With: []byte(id)}}
	envelope := rpc.Envelope{Kind: rpc.Response, ID: edits.Moved(e.ID), Succeeds: e.Succeeds}
	if e.Error.Present() {
		envelope.Error = edits.Moved(e.Error)
	} else {
		envelope.Result = edits.Moved(e.Result)
	}
	return session.Message{Bytes: rpc.Edited(answer.Bytes, edits...), Envelope: envelope}
}

const progressMethod = "notifications/progress"

// progressFor is a progress notification with the client's token.
func progressFor(notification session.Message, token string) session.Message {
	text, at := toClient(notification.Bytes, notification.Envelope.ProgressToken, token)
	return session.Message{Bytes: text, Envelope: rpc.Envelope{Kind: rpc.Notification, Method: []byte(progressMethod), ProgressToken: at}}
}

// success and refusal are answers that are given here rather than by the process.
func success(id string) session.Message {
	return scanned(rpc.AppendResult(nil, []byte(id), []byte("{}")))
}

func refusal(id string, code int, text string) session.Message {
	return scanned(rpc.AppendError(nil, []byte(id), code, text, nil))
}

// scanned is a message that was put together here of parts that were scanned before.
func scanned(text []byte) session.Message {
	envelope, _ := rpc.Scan(text)
	return session.Message{Bytes: text, Envelope: envelope}
}
