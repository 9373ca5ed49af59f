package session

import (
	"context"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// serverRequest is a request of the server that the client has not answered yet.
type serverRequest struct {
	id      string // as the server spelled it
	key     string
	stream  *stream   // nil while the request waits for a stream
	since   time.Time // when the server sent it
	expires time.Time // when the adapter refuses it, if it still waits for a stream
	over    bool      // the server no longer waits for an answer
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

// forgetRequestLocked records that the server no longer waits for an answer to the request.
// If the adapter has not sent the request to the client yet, it does not.
func (s *Session) forgetRequestLocked(request *serverRequest) {
	request.over = true
	delete(s.serverRequests, request.key)
	s.requestBytes -= len(request.id)
	s.account.Change(-len(request.id))
}

// placeRequestLocked puts a request on its stream. A request without a stream waits up to
// DeliveryTimeout for the client to open one.
func (s *Session) placeRequestLocked(event Event) {
	request := event.request
	if s.endedBy != nil {
		return // the client cannot answer it
	}
	if request.stream != nil {
		s.enqueueLocked(request.stream, event)
		return
	}
	s.addLocked(&s.backlog, event)
	request.expires = time.Now().Add(s.limits.DeliveryTimeout)
	s.lookAtLocked(request.expires)
}

// rerouteRequestsLocked moves the requests of the server from a stream that no client will
// read again to another stream.
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

// expireLocked refuses requests of the server for which the client opened no stream, or
// which the client did not answer. It returns when the next request expires, or zero.
func (s *Session) expireLocked(now time.Time) (next time.Time) {
	// The requests in the backlog are in the order in which they expire.
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

// The replies of the adapter to requests of the server, in place of the client.
const (
	pong            = "" // stands for an empty result
	refusedTooMany  = "too many requests of this server wait for an answer of the client"
	refusedNoStream = "the client has no stream open that could take this request"
	refusedNoAnswer = "the client did not answer this request within " // the timeout follows
)

// replies are replies of the adapter that the server has not read yet.
type replies struct {
	queue   queue[reply]
	bytes   int
	writing bool // writeReplies runs
}

type reply struct{ id, text string }

// cost returns the memory of a reply. A queue may have four places for each reply.
func (r *reply) cost() int { return len(r.id) + 128 }

// replyLocked answers a request of the server in place of the client. One goroutine writes all
// replies: a server that does not read blocks the write, and the caller of replyLocked, which
// reads the output of the server, must not block.
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
