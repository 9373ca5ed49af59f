package relay

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// Request is what a pod gets. Forward does not change it, except that it reads Rest.
type Request struct {
	Method string
	Target string // path and query
	Host   string
	// Header goes along without hop-by-hop headers, Host, Content-Length and Expect, which the relay
	// decides on itself.
	Header http.Header
	// Body is the part of the body that was read already.
	Body []byte
	// Rest is the remainder; nil if Body is all.
	Rest io.Reader
	// ContentLength is the length of Body and Rest together, or -1 if it is not known. It means
	// nothing without Rest.
	ContentLength int64
	// Client is whose request it is, for a fair share of the places to one pod.
	Client string
	// Stream says that the answer is a stream without an end, as that to GET is.
	Stream bool
	// Queue has the request wait for a place if a limit is reached, instead of failing. It is called when the request
	// begins to wait, and what it returns when the wait is over. It may be nil.
	Queue func() (over func())
	// Once says that a pod must not get the request twice, whatever its method.
	Once bool
	// ConnectTimeout is how long the request waits for a connection; 0 is as long as a dial takes. The dial goes on for
	// requests that wait longer.
	ConnectTimeout time.Duration
	// Begun is called when the answer has begun. Forward needs Body no more then. It may be nil.
	Begun func()
}

// isWellFormed reports whether the request can be sent such that the pod sees this request and no other.
func (r *Request) isWellFormed() bool {
	if !isToken(r.Method) || r.Target == "" || !isWord(r.Target) || !isWord(r.Host) ||
		r.Rest != nil && r.ContentLength >= 0 && r.ContentLength < int64(len(r.Body)) {
		return false
	}
	for name, values := range r.Header {
		if !isToken(name) {
			return false
		}
		for _, value := range values {
			if !isValue(value) {
				return false
			}
		}
	}
	return true
}

// isToken reports whether a text can be a method or the name of a header.
func isToken(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] >= 0x7f || text[i] == ':' {
			return false
		}
	}
	return text != ""
}

// isWord reports whether a text can be a target or a host.
func isWord(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] == 0x7f {
			return false
		}
	}
	return true
}

// isValue reports whether a text can be the value of a header.
func isValue(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' && text[i] != '\t' || text[i] == 0x7f {
			return false
		}
	}
	return true
}

// length is the length of the body, or -1 if it is not known.
func (r *Request) length() int64 {
	if r.Rest == nil {
		return int64(len(r.Body))
	}
	return r.ContentLength
}

// appendHead appends the request line and the headers.
func (r *Request) appendHead(b []byte) []byte {
	b = append(b, r.Method...)
	b = append(b, ' ')
	b = append(b, r.Target...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, r.Host...)
	b = append(b, "\r\n"...)
	connection := r.Header["Connection"]
	for name, values := range r.Header {
		switch name = http.CanonicalHeaderKey(name); {
		case name == "Host", name == "Content-Length", name == "Expect", front.IsHopByHop(name, connection):
			continue
		}
		for _, value := range values {
			b = append(b, name...)
			b = append(b, ": "...)
			b = append(b, value...)
			b = append(b, "\r\n"...)
		}
	}
	switch length := r.length(); {
	case length < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case length > 0 || r.Method == http.MethodPost:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, length, 10)
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...)
}

const (
	// pieceSize is how much of a body or an answer the relay holds at a time.
	pieceSize = 32 << 10
	// recordSize is how much one record of TLS has at most.
	recordSize = 16 << 10
	// smallBody is the size of a body that the relay sends before it waits for the answer. The sockets
	// hold that much if the pod does not read it.
	smallBody = 64 << 10
)

var pieces = sync.Pool{New: func() any { return new([pieceSize]byte) }}

func getPiece() *[pieceSize]byte {
	return pieces.Get().(*[pieceSize]byte) //nolint:forcetypeassert // the pool has nothing else
}

// send sends a request. It returns nil when the request is sent whole, and otherwise what sends the
// remainder. An error means that the connection is broken.
func (c *conn) send(r *Request) (*sending, error) {
	piece := getPiece()
	defer pieces.Put(piece)
	out := r.appendHead(piece[:0])
	if r.Rest != nil || len(r.Body) > smallBody {
		if _, err := c.tls.Write(out); err != nil {
			return nil, err
		}
		return c.sendBody(r), nil
	}
	first := min(len(r.Body), max(0, recordSize-len(out))) // one record, and one system call, for most
	if _, err := c.tls.Write(append(out, r.Body[:first]...)); err != nil || first == len(r.Body) {
		return nil, err
	}
	_, err := c.tls.Write(r.Body[first:])
	return nil, err
}

// sending is a goroutine that sends a large body while another one waits for the answer. A pod may
// answer before it has read the body, and neither side must wait for the other then.
type sending struct {
	halted atomic.Bool
	read   atomic.Bool // the client has sent all
	done   chan struct{}

	// These are valid once done is closed.
	bodyErr error // of the client's side
	whole   bool  // the pod has got all
}

func (c *conn) sendBody(r *Request) *sending {
	s := &sending{done: make(chan struct{})}
	body := io.Reader(bytes.NewReader(r.Body))
	if r.Rest != nil {
		body = io.MultiReader(body, r.Rest)
	}
	go func() {
		defer close(s.done)
		s.run(c, body, r.length())
	}()
	return s
}

// lateAnswer is the time for the answer of a pod that does not read the body any more.
const lateAnswer = time.Second

func (s *sending) run(c *conn, body io.Reader, length int64) {
	piece := getPiece()
	defer pieces.Put(piece)
	var writeErr error
	if length < 0 {
		s.bodyErr, writeErr = s.copyChunks(c, body, piece)
	} else {
		s.bodyErr, writeErr = s.copyLength(c, body, piece, length)
	}
	switch {
	case s.halted.Load():
		s.bodyErr = nil
	case s.bodyErr != nil:
		c.close() // the pod must not take a part for the whole
	case writeErr != nil:
		_ = c.raw.SetReadDeadline(time.Now().Add(lateAnswer))
	default:
		s.whole = true
	}
}

func (s *sending) copyLength(c *conn, body io.Reader, piece *[pieceSize]byte, length int64) (bodyErr, writeErr error) {
	for length > 0 && !s.halted.Load() {
		n, err := body.Read(piece[:min(length, pieceSize)])
		length -= int64(n)
		s.read.Store(length == 0)
		if n > 0 {
			if _, writeErr = c.tls.Write(piece[:n]); writeErr != nil {
				return nil, writeErr
			}
		}
		switch {
		case errors.Is(err, io.EOF) && length > 0:
			return io.ErrUnexpectedEOF, nil
		case err != nil && length > 0:
			return err, nil
		}
	}
	return nil, nil
}

// Each chunk has its length before it, in hexadecimal digits, and the end of a line after each.
const (
	chunkHead = 6
	chunkTail = 2
)

func (s *sending) copyChunks(c *conn, body io.Reader, piece *[pieceSize]byte) (bodyErr, writeErr error) {
	for !s.halted.Load() {
		n, err := body.Read(piece[chunkHead : pieceSize-chunkTail])
		s.read.Store(errors.Is(err, io.EOF))
		if n > 0 {
			if _, writeErr = c.tls.Write(chunk(piece, n)); writeErr != nil {
				return nil, writeErr
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			_, writeErr = c.tls.Write([]byte("0\r\n\r\n"))
			return nil, writeErr
		case err != nil:
			return err, nil
		}
	}
	return nil, nil
}

// chunk is the piece as a chunk, once n bytes were read into it after the space for the head.
func chunk(piece *[pieceSize]byte, n int) []byte {
	const digits = "0123456789abcdef"
	for i, left := chunkHead-3, n; i >= 0; i, left = i-1, left>>4 {
		piece[i] = digits[left&0xf]
	}
	piece[chunkHead-2], piece[chunkHead-1] = '\r', '\n'
	piece[chunkHead+n], piece[chunkHead+n+1] = '\r', '\n'
	return piece[:chunkHead+n+chunkTail]
}

const (
	// haltAfter is the time for a goroutine that has sent the last byte to say so.
	haltAfter = 5 * time.Millisecond
	// haltAgain is the time after which the relay ends a read of the body once more: the reader may have
	// set a deadline of its own meanwhile.
	haltAgain = 20 * time.Millisecond
)

// halt ends the sending, waits for its goroutine and returns whether the pod has got all. The answer may
// begin only then: net/http does not write the head of an answer while another goroutine reads the body.
func (s *sending) halt(c *conn, client *http.ResponseController) (whole bool) {
	timer := time.NewTimer(haltAfter)
	defer timer.Stop()
	for {
		select {
		case <-s.done:
			return s.whole && !s.halted.Load() // the connection may have a deadline otherwise
		case <-timer.C:
		}
		s.halted.Store(true)
		past := time.Unix(1, 0)
		_ = c.raw.SetWriteDeadline(past) // fails only if it is closed
		if !s.read.Load() {              // otherwise net/http would take the client for gone
			_ = client.SetReadDeadline(past) // fails only without a connection, as in tests
		}
		timer.Reset(haltAgain)
	}
}
