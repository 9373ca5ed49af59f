package session

import (
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// filter says what a client may see of the answer to a list. A nil *filter shows all of it.
type filter struct {
	list  *rules.ListFilter
	grant *access.Grant // of the client
}

// newFilter returns the filter for the answer to a request.
func newFilter(from *caller.Caller, method []byte) *filter {
	list := from.Rights().ListFilter(method)
	if list == nil {
		return nil
	}
	return &filter{list, from.Grant}
}

// isOutdated reports whether another document has taken effect since the filter was used.
func (f *filter) isOutdated() bool { return f != nil && f.grant.Now() != f.grant }

// filterLocked replaces the answer to a list by what the client may see of it now. It releases the session's lock
// meanwhile, because a list may be long. It returns the filter that it used.
func (s *Session) filterLocked(message *Message, answered *call) *filter {
	if answered == nil || answered.filter == nil && s.strayed == nil {
		return nil
	}
	used, apply := answered.filter, (*rules.ListFilter).Apply
	if used == nil {
		used, apply = s.strayed, (*rules.ListFilter).ApplyAny
	}
	used.grant = used.grant.Now()
	list, id := used.list.For(used.grant.Rights), []byte(answered.id)
	s.mu.Unlock()
	defer s.mu.Lock()
	message.GiveRoom()
	message.Bytes, message.Envelope = apply(list, message.Bytes, id)
	return used
}

// strayLocked records that the answer to a call may come after the session has forgotten the call. Then a newer call
// with the same id gets that answer.
func (s *Session) strayLocked(c *call) {
	if c.filter != nil {
		s.strayed = c.filter
	}
}
