package session

import (
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// rights is what the session knows of its client's rights, and of the lists that depend on them. The session's
// mutex guards it.
type rights struct {
	grant     *access.Grant    // of the client's last message, by the document of the last RulesChanged; nil before the first one
	announces subscription.Set // lists whose changes the server announces, as the client knows from initialize
	changed   subscription.Set // lists whose changes the adapter has yet to announce
	telling   bool             // tellChanges runs
}

// fromLocked records what the client may do, which a new token may change. If another document has taken effect,
// RulesChanged records that, because it compares what the client may do with what it could do before.
func (s *Session) fromLocked(message *Message) {
	if message.From == nil {
		return
	}
	switch grant := message.From.Grant; {
	case s.grant == nil:
		s.grant = grant.Now() // the document may have changed while the server started
	case s.grant.IsOfDocument(grant):
		s.grant = grant
	}
}

// noteInitializeLocked reads the answer to initialize. Not every server has scanned all of it.
func (s *Session) noteInitializeLocked(answer []byte) {
	if e, err := rpc.ScanLenient(answer); err == nil {
		s.announces = subscription.Announced(answer, rpc.Lookup(answer, e.Result, "capabilities"))
	}
}

// hearsOfLocked reports whether the client may have a message, which it may not if that is an update of a resource
// that it may not read. The rules may have changed since the client subscribed to it.
func (s *Session) hearsOfLocked(message *rpc.Envelope) bool {
	return s.grant == nil || string(message.Method) != subscription.MethodUpdated || s.grant.Now().Rights.HearsOf(message.URI)
}

// RulesChanged tells the client of the lists that look different to it since the access document has changed,
// if the server announces changes of these lists. It does not wait for the client.
func (s *Session) RulesChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.grant.Now()
	if now == s.grant {
		return
	}
	differ := rules.Changed(s.grant.Rights, now.Rights)
	s.grant = now
	for list := range differ {
		s.changed[list] = s.changed[list] || differ[list] && s.announces[list]
	}
	if s.changed != (subscription.Set{}) && !s.telling {
		s.telling = true
		go s.tellChanges()
	}
}

// tellChanges announces changes until there are none. It delivers them as messages of the server, so it waits if
// the client does not read. Documents that take effect meanwhile add nothing to what waits.
func (s *Session) tellChanges() {
	for list := s.nextChange(); list >= 0; list = s.nextChange() {
		notice := Message{Bytes: subscription.Notification(subscription.Lists[list].Method, "", ""), Unrelated: true, Owned: true}
		notice, err := notice.Scanned()
		if err != nil {
			panic("scan a notification of the adapter: " + err.Error())
		}
		s.Deliver(notice)
	}
}

// nextChange returns a list whose change to announce, or -1.
func (s *Session) nextChange() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for list := range s.changed {
		if s.changed[list] && s.endedBy == nil {
			s.changed[list] = false
			return list
		}
	}
	s.telling = false
	return -1
}
