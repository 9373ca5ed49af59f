package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
)

// relaySize is how much of an answer is held at a time.
const relaySize = 32 << 10

var buffers = sync.Pool{New: func() any { return new([relaySize]byte) }}

// commitAfter is how long the headers of a call's stream wait for its first event,
// so that both can be sent in one go.
const commitAfter = 100 * time.Millisecond

var errClientSlow = errors.New("the client does not read")

// relay sends the server's answer to the client, as it comes. If it breaks off in
// the middle the client sees that.
func (x *exchange) relay(ctx context.Context, response *http.Response) {
	out := x.begin(response)
	err := out.copy(response.Body)
	whole := out.close()
	switch cause := context.Cause(ctx); {
	case err == nil || errors.Is(err, errClientSlow) || errors.Is(cause, errClientGone):
		return
	case errors.Is(cause, errTimeout):
		x.timedOut(ctx)
	case cause == nil:
		x.proxy.noteOutage()
		x.proxy.Metrics.Broken.Inc()
	}
	x.r.Record.Answered(edge.Broken)
	if !whole {
		panic(http.ErrAbortHandler) // nobody shall take a part for the whole
	}
}

// begin sends the head of the answer, or has it ready to be sent.
func (x *exchange) begin(response *http.Response) *sink {
	header := x.w.Header()
	answered(header, response.Header)
	out := &sink{w: x.w, control: http.NewResponseController(x.w), timeout: x.proxy.WriteTimeout, flushes: response.ContentLength < 0}
	if !isEvents(response.Header) {
		x.w.WriteHeader(response.StatusCode)
		return out
	}
	header.Del("Content-Length")
	header.Set("X-Accel-Buffering", "no")
	if header.Get("Cache-Control") == "" {
		header.Set("Cache-Control", "no-cache, no-transform")
	}
	x.w.WriteHeader(response.StatusCode)
	out.flushes = true
	if response.Header.Get("Content-Encoding") == "" {
		first := commitAfter
		if x.stream {
			first = 0 // proxies hold headers back until something follows them (T-13)
		}
		out.keepAlive(first, x.proxy.KeepAlive)
	}
	return out
}

func isEvents(header http.Header) bool {
	mediaType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	return err == nil && mediaType == frontend.TypeEvents
}

// sink writes an answer to the client. While an event stream is silent it writes
// comments between the events.
type sink struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	flushes bool // after every write

	mu     sync.Mutex
	timer  *time.Timer // nil if silence does not matter
	every  time.Duration
	tail   []byte // the last bytes written
	closed bool
	failed error
}

func (s *sink) keepAlive(first, every time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.every = every
	s.timer = time.AfterFunc(first, s.comment)
}

func (s *sink) comment() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.failed != nil {
		return
	}
	if betweenEvents(s.tail) {
		_ = s.writeLocked([]byte(rpc.KeepAlive)) // who writes next is told
	}
	s.timer.Reset(s.every)
}

// copy writes everything that can be read.
func (s *sink) copy(from io.Reader) error {
	buffer := buffers.Get().(*[relaySize]byte) //nolint:forcetypeassert // nothing else is put there
	defer buffers.Put(buffer)
	for {
		n, err := from.Read(buffer[:])
		if n > 0 {
			if err := s.write(buffer[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func (s *sink) write(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Reset(s.every)
	}
	if err := s.writeLocked(b); err != nil {
		return err
	}
	if s.timer != nil {
		const longest = len("\r\n\r\n")
		s.tail = append(s.tail, b[max(0, len(b)-longest):]...)
		s.tail = append(s.tail[:0], s.tail[max(0, len(s.tail)-longest):]...)
	}
	return nil
}

// writeLocked writes within a deadline. A client that does not read for that long
// is treated as gone.
func (s *sink) writeLocked(b []byte) error {
	if s.failed != nil {
		return s.failed
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout)) // where there is none, there is none
	_, err := s.w.Write(b)
	if err == nil && s.flushes {
		err = s.control.Flush()
	}
	if err != nil {
		s.failed = errors.Join(errClientSlow, err)
	}
	return s.failed
}

// close ends the writing. It says whether what was written ends between two events.
func (s *sink) close() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.failed == nil {
		// The connection may be used again, and the server sets no deadline itself.
		_ = s.control.SetWriteDeadline(time.Time{})
	}
	return s.timer != nil && betweenEvents(s.tail)
}

// betweenEvents says whether a stream that ends so far with tail is at a place
// where an event may begin: at its start or after an empty line.
func betweenEvents(tail []byte) bool {
	line, ended := cutLineEnd(tail)
	_, empty := cutLineEnd(line)
	return len(tail) == 0 || ended && (empty || len(line) == 0)
}

func cutLineEnd(b []byte) (line []byte, ended bool) {
	for _, end := range []string{"\r\n", "\n", "\r"} {
		if line, ok := bytes.CutSuffix(b, []byte(end)); ok {
			return line, true
		}
	}
	return b, false
}
