package session

import (
	"bytes"
	"slices"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// tokenKey returns the key of the progress token of a request, or "".
func tokenKey(request *Message) string {
	raw := request.Envelope.ProgressToken.Of(request.Bytes)
	if string(raw) == "null" {
		return ""
	}
	return string(rpc.IDKey(raw))
}

// callByTokenLocked returns the call in flight with the progress token, or nil.
func (s *Session) callByTokenLocked(raw []byte) *call {
	if len(raw) == 0 {
		return nil
	}
	key := rpc.IDKey(raw)
	for _, c := range s.calls {
		if c.token == string(key) { // this conversion does not allocate
			return c
		}
	}
	return nil
}

// noteTaskLocked remembers the progress token of a call that the server answered with a task.
// The server reports progress for as long as the task lasts. The session does not know how
// long, so it keeps only the last tokens.
func (s *Session) noteTaskLocked(c *call) {
	if c.token == "" || !c.task || slices.Contains(s.taskTokens, c.token) {
		return
	}
	s.taskTokens = appendLast(s.taskTokens, c.token, s.limits.Calls)
}

// asksForTask reports whether a request has a progress token and asks for a task.
func asksForTask(request *Message) bool {
	e := &request.Envelope
	return e.ProgressToken.Present() &&
		bytes.Contains(e.Params.Of(request.Bytes), []byte(`"task"`)) && // which is fast, and nearly always false
		rpc.Lookup(request.Bytes, e.Params, "task").Present()
}
