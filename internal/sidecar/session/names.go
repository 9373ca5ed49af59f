package session

import (
	"bytes"
	"encoding/json"
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
	if len(s.taskTokens) >= s.limits.Calls {
		s.taskTokens = slices.Delete(s.taskTokens, 0, 1)
	}
	s.taskTokens = append(s.taskTokens, c.token)
}

// asksForTask says whether a request, if it has a token at all, asks for a task.
func asksForTask(request *Message) bool {
	params := request.Envelope.Params.Of(request.Bytes)
	if !request.Envelope.ProgressToken.Present() || !bytes.Contains(params, []byte(`"task"`)) {
		return false
	}
	var found struct {
		Task json.RawMessage `json:"task"`
	}
	return json.Unmarshal(params, &found) == nil && found.Task != nil
}
