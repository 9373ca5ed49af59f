package session

import (
	"bytes"
	"slices"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// tokenKey is the progress token of a request, if it has one.
func tokenKey(request *Message) string {
	raw := request.Envelope.ProgressToken.Of(request.Bytes)
	if string(raw) == "null" {
		return ""
	}
	return string(rpc.IDKey(raw))
}

// callByTokenLocked is the call in flight that the token of progress names.
func (s *Session) callByTokenLocked(raw []byte) *call {
	if len(raw) == 0 {
		return nil
	}
	key := rpc.IDKey(raw)
	for _, c := range s.calls {
		if c.token == string(key) { // which makes no string
			return c
		}
	}
	return nil
}

// noteTaskLocked remembers the token of a call that was answered with a task, which has
// progress for as long as the task lasts. That nobody here knows, so the oldest make
// room for newer ones.
func (s *Session) noteTaskLocked(c *call) {
	if c.token == "" || !c.task || slices.Contains(s.taskTokens, c.token) {
		return
	}
	s.taskTokens = appendLast(s.taskTokens, c.token, s.limits.Calls)
}

// asksForTask says whether a request, if it has a token at all, asks for a task.
func asksForTask(request *Message) bool {
	e := &request.Envelope
	return e.ProgressToken.Present() &&
		bytes.Contains(e.Params.Of(request.Bytes), []byte(`"task"`)) && // which is fast, and nearly always false
		rpc.Lookup(request.Bytes, e.Params, "task").Present()
}
