package proxy

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/handle"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote"
)

// sealedBytes is the largest answer, or line of an event, in which the proxy looks for a state of a caller that the
// adapter has not verified. Everything larger passes as it comes. A state in it does not name its pod, so that the next
// request reaches any process.
const sealedBytes = 64 << 10

// continues reports whether the request goes on with a state that this pod has given to its caller.
func (x *exchange) continues() bool {
	h := x.proxy.Handles
	if len(x.r.Messages) != 1 || !h.Binds(&x.r.Caller) {
		return false
	}
	message := &x.r.Messages[0]
	owner, ok := handle.OwnerOf(h.Keys.States(), &x.r.Caller, message.Bytes, &message.Envelope)
	return ok && owner.UID == h.Owner.UID
}

// sealStates has states in the answer name their pod.
func (x *exchange) sealStates(response *http.Response) {
	switch {
	case response.Header.Get("Content-Encoding") != "":
	case remote.IsEvents(response.Header):
		response.Body = &stateReader{ReadCloser: response.Body, seal: x.sealed}
		response.Header.Del("Content-Length")
		response.ContentLength = -1
	case isJSON(response.Header):
		x.sealBody(response)
	}
}

// sealed returns a message with its state sealed, if it is an answer that has one.
func (x *exchange) sealed(message []byte) []byte {
	if !handle.Mentions(message) {
		return message
	}
	sealed, ok := applyTo(bytes.Clone(message), x.bind)
	if !ok {
		return message
	}
	return sealed
}

func (x *exchange) sealBody(response *http.Response) {
	body, err := io.ReadAll(io.LimitReader(response.Body, sealedBytes))
	rest := io.Reader(response.Body)
	if err != nil {
		rest = broken{err}
	}
	if err == nil && len(body) < sealedBytes {
		if sealed := x.sealed(body); len(sealed) != len(body) {
			body = sealed
			response.ContentLength = int64(len(body))
			response.Header.Set("Content-Length", strconv.Itoa(len(body)))
		}
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), response.Body}
}

// stateReader is a stream of events with sealed states. It holds a line back until the line has ended, or is too
// large.
type stateReader struct {
	io.ReadCloser
	seal  func(message []byte) []byte
	ready bytes.Buffer // to be read
	line  []byte       // the beginning of one that goes on
	large bool         // the line passes as it comes
	err   error        // after what is ready
}

func (s *stateReader) Read(into []byte) (int, error) {
	for s.ready.Len() == 0 && s.err == nil {
		n, err := s.ReadCloser.Read(into)
		s.take(into[:n])
		if s.err = err; err != nil { // what is left is no whole event, and no client reads it
			s.ready.Write(s.line)
		}
	}
	if s.ready.Len() == 0 {
		return 0, s.err
	}
	return s.ready.Read(into)
}

// take makes whole lines ready. A CR ends a line at once. An LF after it passes as the end of an empty
// line: the client gets the same bytes.
func (s *stateReader) take(text []byte) {
	for len(text) > 0 {
		end := rpc.LineEnd(text)
		part := text[:end]
		switch {
		case s.large:
			s.ready.Write(part)
		case len(s.line)+len(part) > sealedBytes:
			s.ready.Write(s.line)
			s.ready.Write(part)
			s.line, s.large = nil, true
		default:
			s.line = append(s.line, part...)
		}
		if end == len(text) {
			return
		}
		s.ready.Write(s.sealLine())
		s.ready.WriteByte(text[end])
		s.line, s.large, text = s.line[:0], false, text[end+1:]
	}
}

// sealLine returns the line, with the state sealed that a message in it has.
func (s *stateReader) sealLine() []byte {
	if !bytes.HasPrefix(s.line, []byte("data:")) || !handle.Mentions(s.line) {
		return s.line
	}
	begin := max(bytes.IndexByte(s.line, '{'), 0)
	return slices.Concat(s.line[:begin], s.seal(s.line[begin:]))
}
