package session

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// TellAll sends the notifications and answers among the messages of a client, and returns its
// requests, for Call. It reuses the slice.
func (s *Session) TellAll(ctx context.Context, from *caller.Caller, messages []Message) (requests []Message, err error) {
	requests = messages[:0]
	for i := range messages {
		message := messages[i]
		message.From = from
		if message.Envelope.Kind == rpc.Request {
			requests = append(requests, message)
		} else if err := s.Tell(ctx, message); err != nil {
			return nil, err
		}
	}
	return requests, nil
}

// Tell sends the server a notification, or an answer to a request of the server.
func (s *Session) Tell(ctx context.Context, message Message) error {
	s.mu.Lock()
	if s.endedBy != nil {
		s.mu.Unlock()
		return ErrEnded
	}
	s.touched = time.Now()
	s.useLocked(message.Envelope.Method)
	s.fromLocked(&message)
	answered, forward := s.noteLocked(message)
	s.mu.Unlock()
	if !forward {
		return nil
	}
	if err := s.send(ctx, &message); err != nil {
		s.takeBack(answered)
		return fmt.Errorf("send message to server: %w", err)
	}
	return nil
}

// send sends the server a message of the client, unless the messages that the server has not
// read yet exceed SendingBytes. A single message may exceed it.
func (s *Session) send(ctx context.Context, message *Message) error {
	size, limit := int64(len(message.Bytes)), int64(s.limits.SendingBytes)
	defer s.sending.Add(-size)
	if waiting := s.sending.Add(size); limit > 0 && waiting > limit && waiting > size {
		return ErrServerBusy
	}
	err := s.server.Send(ctx, *message)
	if errors.Is(err, syscall.EPIPE) && s.endsSoon(ctx) {
		return ErrEnded
	}
	return err
}

// endsWithin is how long a message for a server that has closed its input waits for the end of the session.
const endsWithin = time.Second

// endsSoon waits for the end of the session. The pipe of a process that dies breaks a moment before the process is known to
// be dead. Until then, an answer would have the client try again in a session that is over.
func (s *Session) endsSoon(ctx context.Context) bool {
	timer := time.NewTimer(endsWithin)
	defer timer.Stop()
	select {
	case <-s.ended:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// takeBack restores a server request whose answer did not reach the server, so that the client
// can answer again.
func (s *Session) takeBack(answered *serverRequest) {
	if answered == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.serverRequests[answered.key]; !again && s.endedBy == nil {
		s.noteRequestLocked(answered)
	}
}

// noteLocked records an answer or a cancellation of the client. It returns the request of the
// server that the client answers, or nil, and whether the server should get the message.
func (s *Session) noteLocked(message Message) (answered *serverRequest, forward bool) {
	e := &message.Envelope
	switch {
	case e.Kind == rpc.Response:
		request, known := s.serverRequests[string(rpc.IDKey(e.ID.Of(message.Bytes)))]
		if !known { // the server did not ask
			s.metrics.UnmatchedAnswers.Inc()
			return nil, false
		}
		s.forgetRequestLocked(request)
		return request, true
	case string(e.Method) == rpc.MethodCancelled:
		if c := s.callLocked(e.RequestID.Of(message.Bytes)); c != nil && !c.cancelled {
			s.cancelLocked(c)
		}
	}
	return nil, true
}
