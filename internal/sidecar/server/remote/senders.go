package remote

import (
	"maps"
	"net/http"
	"sync/atomic"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// sender is on whose behalf a message is sent, and what the server is shown for that.
type sender struct {
	from   *caller.Caller // nil is the adapter
	header http.Header
}

func senderOf(from *caller.Caller) sender {
	header := shownBy(from)
	maps.Copy(header, from.Trace)
	return sender{from: from.Clone(), header: header}
}

// isAccepted says whether the server has let the sender in by an answer with the status,
// and tells the sender.
func (s sender) isAccepted(status int) bool {
	if s.from == nil || status >= http.StatusMultipleChoices {
		return false
	}
	if s.from.Accepted != nil {
		s.from.Accepted()
	}
	return true
}

// senders are those of the messages of one session.
type senders struct {
	opener   http.Header                 // of the caller that the session was opened for
	accepted atomic.Pointer[http.Header] // of the caller that the server has let in last
}

// sender returns the sender of a message. Knowing the id of a session gives no rights: the
// server is shown what the client shows that has sent the message.
func (s *senders) sender(from *caller.Caller) sender {
	if from == nil {
		return sender{header: s.lastHeader()}
	}
	return senderOf(from)
}

// lastHeader is for what no message asks for. What clients show expires, so it is not the
// one that the session was opened with.
func (s *senders) lastHeader() http.Header {
	if accepted := s.accepted.Load(); accepted != nil {
		return *accepted
	}
	return s.opener
}

// noteAnswer notes whether the server has let the sender in.
func (s *senders) noteAnswer(by sender, status int) {
	if !by.isAccepted(status) {
		return
	}
	header := by.header
	if by.from.Trace != nil {
		header = shownBy(by.from)
	}
	s.accepted.Store(&header)
}
