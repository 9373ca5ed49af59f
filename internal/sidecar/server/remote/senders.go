package remote

import (
	"maps"
	"net/http"
	"sync/atomic"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// sender is the caller on whose behalf the adapter sends a message, and the headers that the server
// gets for that.
type sender struct {
	from   *caller.Caller // nil is the adapter
	header http.Header
}

// isAccepted says whether a response with the status means that the server has let the sender in. If
// so, it tells the caller.
func (s sender) isAccepted(status int) bool {
	if s.from == nil || status >= http.StatusMultipleChoices {
		return false
	}
	if s.from.Accepted != nil {
		s.from.Accepted()
	}
	return true
}

// senders are those of the messages of one connection.
type senders struct {
	opener   http.Header                 // of the caller that opened the connection
	accepted atomic.Pointer[http.Header] // of the caller that the server has let in last
}

// sender returns the sender of a message. Knowing the id of a session gives no rights: the server
// sees the token of the client that has sent the message.
func (s *senders) sender(from *caller.Caller) sender {
	if from == nil {
		return sender{header: s.lastHeader()}
	}
	header := shownBy(from)
	maps.Copy(header, from.Trace)
	return sender{from: from.Clone(), header: header}
}

// lastHeader is for requests that the adapter makes by itself. Tokens expire, so it prefers one that
// the server has accepted since the connection was opened.
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
