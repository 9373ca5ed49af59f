package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

var errMessageTooLarge = errors.New("an answer is larger than the limit")

// noAnswer is for a response in which the answer to the request is missing.
func noAnswer(status int) error {
	return fmt.Errorf("the server's response with status %d has no answer to the request in it", status)
}

// isStream says whether the answers in a response come as events.
func isStream(response *http.Response) bool {
	return response.StatusCode < http.StatusMultipleChoices && IsEvents(response.Header)
}

// takeBody has the answer to a call received that a response without a stream has.
func (l *link) takeBody(c *call, status int, body []byte) {
	if status >= http.StatusMultipleChoices {
		l.answer(c, errorIn(c, status, body))
		return
	}
	l.deliver(c, body, true)
	if !c.answered {
		l.fail(c, noAnswer(status).Error())
	}
}

// readBody reads a response that is no stream.
func (s *Server) readBody(response *http.Response) ([]byte, error) {
	limit := int64(s.MessageBytes)
	body, err := s.readAll(io.LimitReader(response.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the server's answer: %w", err)
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("%w of %d bytes", errMessageTooLarge, limit)
	}
	return body, nil
}

// readAll is io.ReadAll for a body that may be large.
func (s *Server) readAll(from io.Reader) ([]byte, error) {
	room := s.Memory.Account(nil)
	defer func() { room.Change(-int(room.Held())) }() // the session counts the body
	body, err := ReadAll(from, s.MessageBytes, func(total int) error { return room.Reach(total, nil) })
	if err != nil {
		return nil, err
	}
	return body, nil
}

// ReadAll is io.ReadAll for a body that may be large. It asks before its buffer grows, and an error ends it.
// The buffer grows no further if the body is larger than most. ReadAll also returns what it has read before
// an error.
func ReadAll(from io.Reader, most int, reserve func(total int) error) ([]byte, error) {
	body := make([]byte, 0, 512)
	for {
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return body, err
		}
		if len(body) < cap(body) {
			continue
		}
		size := min(2*cap(body), max(most+bytes.MinRead, cap(body)+1))
		if err := reserve(size); err != nil {
			return body, err
		}
		body = append(make([]byte, 0, size), body...)
	}
}

// events reads a stream of the server. Large events take memory of the budget while they are read.
func (s *Server) events(stream io.Reader) *rpc.EventReader {
	events := rpc.NewEventReader(stream, s.MessageBytes)
	room := s.Memory.Account(nil)
	events.Bound(func(total int) error { return room.Reach(total, nil) })
	return events
}

// readEvents has the messages of a stream received, until the call has its answer or the stream
// ends, and returns how many events there were.
func (l *link) readEvents(events *rpc.EventReader, response *http.Response, c *call) (count int, err error) {
	for c == nil || !c.answered {
		event, err := events.Next()
		if err != nil {
			return count, err
		}
		count++
		if event.Type != rpc.EventMessage {
			l.server.Junk.Inc()
			continue
		}
		l.deliver(c, event.Data, event.Owned)
	}
	Discard(response)
	return count, nil
}

// streamEnded answers a call whose stream has ended for a reason, if the stream had no answer.
func (l *link) streamEnded(c *call, reason error) {
	if errors.Is(reason, rpc.ErrEventTooLarge) {
		l.fail(c, reason.Error())
		return
	}
	l.fail(c, "the server ended the stream of the call without an answer")
}

// readAnswer reads the answer to a request of the adapter's own. The body of an error may be any.
func (s *Server) readAnswer(response *http.Response, id []byte) ([]byte, error) {
	if !isStream(response) {
		body, err := s.readBody(response)
		if err == nil && response.StatusCode < http.StatusMultipleChoices && !isAnswer(body, id) {
			err = noAnswer(response.StatusCode)
		}
		return body, err
	}
	events := s.events(response.Body)
	for {
		event, err := events.Next()
		if err != nil {
			return nil, fmt.Errorf("wait for the server's answer: %w", err)
		}
		if isAnswer(event.Data, id) {
			return event.Data, nil
		}
	}
}

func isAnswer(message, id []byte) bool {
	envelope, err := rpc.ScanLenient(message)
	return err == nil && envelope.Kind == rpc.Response && rpc.SameID(envelope.ID.Of(message), id)
}

// longestExcerpt is how much of a body that is not a message goes into an error text.
const longestExcerpt = 512

// errorIn is the answer to a call whose response is an HTTP error: the error in the body, if that is
// about this call or names no call, or else one that has the status.
func errorIn(c *call, status int, body []byte) []byte {
	envelope, err := rpc.ScanLenient(body)
	if err == nil && envelope.Kind == rpc.Response && envelope.Error.Present() && (!envelope.ID.Present() || rpc.SameID(envelope.ID.Of(body), c.id)) {
		return rpc.AppendErrorObject(nil, c.id, envelope.Error.Of(body))
	}
	text := fmt.Sprintf("the server answers with status %d", status)
	if said := strings.Join(strings.Fields(strings.ToValidUTF8(string(body[:min(len(body), longestExcerpt)]), "?")), " "); said != "" {
		text += ": " + rpc.Clip(said)
	}
	return rpc.AppendError(nil, c.id, rpc.CodeInternal, text, nil)
}

// codeOf is the code of the error in an answer, or 0. It also reads errors that are no valid messages.
func codeOf(answer []byte) int {
	var response struct {
		Error struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(answer, &response) != nil {
		return 0
	}
	return response.Error.Code
}
