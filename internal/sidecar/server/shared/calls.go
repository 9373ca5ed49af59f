package shared

import (
	"slices"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// errBusy refuses a call when the calls of all sessions reach the limit.
var errBusy = fault.Busy("as many calls are in flight at the shared server as may be")

// call is a request in flight at the child process.
type call struct {
	number uint64       // the request's id and progress token at the child process
	view   *sessionView // of the session that made the request; nil if the adapter made it
	id     string       // as the client spelled it
	key    string       // equal for all spellings of the id
	token  string       // the progress token, as the client spelled it

	cancelled bool
	topic     *topic // not nil for a request that changes a subscription
}

// cancelledCalls is how many cancelled calls of a session stay known, for servers that answer
// cancelled calls. The protocol tells servers not to, and most do not.
const cancelledCalls = 64

// registerLocked records a session's call, so that its answer finds the session.
func (i *instance) registerLocked(c *call) error {
	v := c.view
	if old := v.calls[c.key]; old != nil {
		// A session reuses the id only of a call that it has given up. The answer to the old
		// call must not reach the new one.
		i.forgetLocked(old)
	}
	switch {
	case len(v.calls)-len(v.cancelled) >= i.options.Session.Calls:
		return session.ErrTooManyCalls
	case i.LenLocked() >= i.options.Calls && !i.evictLocked():
		return errBusy
	}
	i.AddLocked(c.number, c)
	v.calls[c.key] = c
	return nil
}

func (i *instance) forgetLocked(c *call) {
	i.DropLocked(c.number)
	if c.topic != nil {
		return
	}
	if c.view.calls[c.key] == c {
		delete(c.view.calls, c.key)
	}
	if c.cancelled {
		c.view.cancelled = slices.DeleteFunc(c.view.cancelled, func(other *call) bool { return other == c })
	}
}

// evictLocked forgets a cancelled call of any session. It returns false if there is none.
func (i *instance) evictLocked() bool {
	for v := range i.views {
		if len(v.cancelled) > 0 {
			i.forgetLocked(v.cancelled[0])
			return true
		}
	}
	return false
}

// cancelLocked records that a client has cancelled a call.
func (i *instance) cancelLocked(c *call) {
	v := c.view
	c.cancelled = true
	v.cancelled = append(v.cancelled, c)
	if len(v.cancelled) > cancelledCalls {
		i.forgetLocked(v.cancelled[0])
	}
}

// toProcess returns a client's request with the number in place of the id and the progress token.
func toProcess(request session.Message, number uint64) []byte {
	text := strconv.AppendUint(nil, number, 10)
	edits := []rpc.Edit{{Span: request.Envelope.ID, With: text}}
	if token := tokenOf(request); token != "" {
		edits = append(edits, rpc.Edit{Span: request.Envelope.ProgressToken, With: text})
	}
	return rpc.Edited(request.Bytes, edits...)
}

// tokenOf returns the progress token of a request. A null token counts as none.
func tokenOf(request session.Message) string {
	token := string(request.Envelope.ProgressToken.Of(request.Bytes))
	if token == "null" {
		return ""
	}
	return token
}

// replaced returns a message with another value in one place, and the place of the new value.
func replaced(message []byte, at rpc.Span, value string) ([]byte, rpc.Span) {
	text := rpc.Edited(message, rpc.Edit{Span: at, With: []byte(value)})
	return text, rpc.Span{Start: at.Start, End: at.Start + len(value)}
}

// answerFor returns an answer of the child process with the client's id. The envelope tells the
// session whether the call succeeded.
func answerFor(answer session.Message, id string) session.Message {
	var edits rpc.Edits
	edits.Replace(answer.Envelope.ID, []byte(id))
	return session.Message{Bytes: edits.Edited(answer.Bytes), Envelope: edits.MovedEnvelope(answer.Envelope), Owned: true}
}

const progressMethod = "notifications/progress"

// progressFor returns a progress notification with the client's token.
func progressFor(notification session.Message, token string) session.Message {
	text, at := replaced(notification.Bytes, notification.Envelope.ProgressToken, token)
	return session.Message{Bytes: text, Envelope: rpc.Envelope{Kind: rpc.Notification, Method: []byte(progressMethod), ProgressToken: at}}
}

// success and refusal are answers that the adapter gives in place of the child process.
func success(id string) session.Message {
	return scanned(rpc.AppendResult(nil, []byte(id), []byte("{}")))
}

func refusal(id string, code int, text string) session.Message {
	return scanned(rpc.AppendError(nil, []byte(id), code, text, nil))
}

// scanned scans a message that the adapter has composed. The message is always valid.
func scanned(text []byte) session.Message {
	envelope, _ := rpc.Scan(text)
	return session.Message{Bytes: text, Envelope: envelope}
}
