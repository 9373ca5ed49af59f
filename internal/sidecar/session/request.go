package session

import (
	"context"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// serverRequest is a request of the server's that has no answer yet.
type serverRequest struct {
	id      string // as the server spelled it
	key     string
	stream  *stream   // nil while it waits for one
	since   time.Time // when the server sent it
	expires time.Time // when it is refused, while it waits for a stream
	over    bool      // it needs no answer any more
}

func (s *Session) deliverRequestLocked(message Message, event Event) {
	id := message.Envelope.ID.Of(message.Bytes)
	request := &serverRequest{since: time.Now()}
	request.id, request.key = idAndKey(id)
	if old, ok := s.serverRequests[request.key]; ok {
		s.forgetRequestLocked(old)
	} else if most := s.limits.Requests + len(s.calls); s.limits.Requests > 0 &&
		(len(s.serverRequests) >= most || s.requestBytes+len(id) > s.limits.PendingBytes || !s.account.Fits(len(id))) {
		s.metrics.RefusedRequests.Inc()
		s.replyLocked(request.id, refusedTooMany)
		return
	}
	request.stream = s.streamForLocked(message)
	event.request = request
	s.noteRequestLocked(request)
	s.placeRequestLocked(event)
	if s.limits.RequestTimeout > 0 {
		s.lookAtLocked(request.since.Add(s.limits.RequestTimeout))
	}
}

func (s *Session) noteRequestLocked(request *serverRequest) {
	request.over = false
	s.serverRequests[request.key] = request
	s.requestBytes += len(request.id)
	s.account.Change(len(request.id))
}

// forgetRequestLocked notes that a request needs no answer any more. If it still waits it
// is not sent.
func (s *Session) forgetRequestLocked(request *serverRequest) {
	request.over = true
	delete(s.serverRequests, request.key)
	s.requestBytes -= len(request.id)
	s.account.Change(-len(request.id))
}

// placeRequestLocked puts a request on its stream or, if it has none, has it wait
// for one for some time.
func (s *Session) placeRequestLocked(event Event) {
	request := event.request
	if s.endedBy != nil {
		return // no client will answer it
	}
	if request.stream != nil {
		s.enqueueLocked(request.stream, event)
		return
	}
	s.addLocked(&s.backlog, event)
	request.expires = time.Now().Add(s.limits.DeliveryTimeout)
	s.lookAtLocked(request.expires)
}

// rerouteRequestsLocked finds another stream for the server's requests on one that
// no client will read any more.
func (s *Session) rerouteRequestsLocked(from *stream) {
	if from.sure.len() == 0 {
		return
	}
	var requests []Event
	from.sure.deleteFunc(func(event Event) bool {
		if event.kind != rpc.Request {
			return false
		}
		s.waitLocked(-event.cost())
		if !event.request.over {
			requests = append(requests, event)
		}
		return true
	})
	for _, event := range requests {
		event.request.stream = s.newestGeneralLocked()
		s.placeRequestLocked(event)
	}
}

// expireLocked refuses requests of the server's that no client stream came for, or
// that the client did not answer. It returns when the next of them is due.
func (s *Session) expireLocked(now time.Time) (next time.Time) {
	// They are in the order in which they expire.
	for s.trimLocked(&s.backlog); s.backlog.sure.len() > 0; s.trimLocked(&s.backlog) {
		request := s.backlog.sure.first().request
		if now.Before(request.expires) {
			next = request.expires
			break
		}
		s.expireRequestLocked(request, refusedNoStream)
	}
	if s.limits.RequestTimeout <= 0 {
		return next
	}
	for _, request := range s.serverRequests {
		due := request.since.Add(s.limits.RequestTimeout)
		switch {
		case !now.Before(due):
			s.expireRequestLocked(request, refusedNoAnswer)
		case next.IsZero() || due.Before(next):
			next = due
		}
	}
	return next
}

func (s *Session) expireRequestLocked(request *serverRequest, why string) {
	s.metrics.ExpiredRequests.Inc()
	s.forgetRequestLocked(request)
	s.replyLocked(request.id, why)
}

// What the adapter says to requests of the server's in the client's place.
const (
	pong            = "" // an empty result
	refusedTooMany  = "too many requests of this server wait for an answer of the client"
	refusedNoStream = "the client has no stream open that could take this request"
	refusedNoAnswer = "the client did not answer this request within " // so much time
)

// replies are answers to requests of the server's that the server has yet to read.
type replies struct {
	queue   queue[reply]
	bytes   int
	writing bool // a goroutine writes them
}

type reply struct{ id, text string }

// cost is what a reply takes of memory. A queue may have four places for each that is taken.
func (r *reply) cost() int { return len(r.id) + 128 }

// replyLocked answers a request of the server's in the client's place. The answer is written
// by one goroutine for all, since a server that does not read holds it up, and the caller
// reads the server's output: it must not wait for the server to read.
func (s *Session) replyLocked(id, text string) {
	r := reply{id, text}
	if s.replies.bytes+r.cost() > s.limits.PendingBytes || !s.account.Fits(r.cost()) {
		s.metrics.DroppedReplies.Inc()
		return
	}
	s.replies.bytes += r.cost()
	s.account.Change(r.cost())
	s.replies.queue.push(r)
	if !s.replies.writing {
		s.replies.writing = true
		go s.writeReplies()
	}
}

// writeReplies writes replies until there are none, or the session ends. If the server does
// not read one, writeReplies drops that one and all that wait behind it.
func (s *Session) writeReplies() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.endedBy == nil && s.replies.queue.len() > 0 {
		r := s.replies.queue.pop()
		s.replies.bytes -= r.cost()
		s.account.Change(-r.cost())
		s.mu.Unlock()
		err := s.server.Send(context.Background(), Message{Bytes: s.replyTo(r)})
		s.mu.Lock()
		if err != nil {
			for range 1 + s.replies.queue.len() {
				s.metrics.DroppedReplies.Inc()
			}
			break
		}
	}
	s.account.Change(-s.replies.bytes)
	s.replies = replies{}
}

func (s *Session) replyTo(r reply) []byte {
	switch r.text {
	case pong:
		return rpc.AppendResult(nil, []byte(r.id), []byte("{}"))
	case refusedNoAnswer:
		r.text += s.limits.RequestTimeout.String()
	}
	return rpc.AppendError(nil, []byte(r.id), rpc.CodeInternal, r.text, nil)
}
