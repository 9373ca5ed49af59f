package peer

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// holdAfter is how long a stream waits for a place before its client gets the beginning of an answer. Clients of the Go SDK
// send nothing else until they have one.
const holdAfter = time.Second

// stream is run for a stream of a session.
//
// If this pod already passes on as many streams to the owner as it can, the stream waits for a place, and its client gets
// comments until there is one. The owner keeps the server's messages for that long. A refusal would cost more: the Go SDK
// ends the session if 405 or 503 answers a GET that resumes a stream. If they answer the first GET, the session goes on
// without a stream for good, and loses the server's messages. A stream that waits takes no more than the connection of its
// client, and connections have a limit of their own.
func (p *passage) stream() bool {
	ctx, leave := p.router.untilDrain(p.r.Context())
	defer leave()
	h := &held{ResponseWriter: p.w, leave: leave}
	defer h.close()
	p.w, p.request.Queue = h, h.wait
	unanswered := p.run(ctx, time.Now().Add(streamPatience))
	if h.comments != nil && (unanswered || h.dropped) {
		panic(http.ErrAbortHandler) // the client has the beginning of another answer; it gets this one when it comes back
	}
	return unanswered
}

// held is the answer to the client of a stream that may wait for a place.
type held struct {
	http.ResponseWriter
	leave func() // ends the request

	mu       sync.Mutex // guards what follows while the stream waits
	waits    bool
	comments *front.Events // nil until the client has the beginning of an answer
	header   http.Header   // of the owner, which comes too late then
	dropped  bool          // the owner's answer is no stream, and comes too late
}

// wait is the Queue of the request.
func (h *held) wait() (over func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waits = true
	timer := time.AfterFunc(holdAfter, h.begin)
	return func() {
		timer.Stop()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.waits = false
	}
}

// begin begins the answer.
func (h *held) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.waits || h.comments != nil {
		return
	}
	h.header = http.Header{}
	h.comments = front.StartEvents(h.ResponseWriter, http.StatusOK, front.WriteTimeout, nil)
	h.comments.Comment()
	if h.comments.Flush() != nil {
		h.leave()
		return
	}
	h.comments.KeepAlive(front.KeepAliveInterval, front.KeepAliveInterval, h.leave)
}

// close ends the comments.
func (h *held) close() {
	if h.comments != nil {
		h.comments.Close()
	}
}

// Header implements http.ResponseWriter.
func (h *held) Header() http.Header {
	if h.comments != nil {
		return h.header
	}
	return h.ResponseWriter.Header()
}

// WriteHeader implements http.ResponseWriter.
func (h *held) WriteHeader(status int) {
	if h.comments == nil {
		h.ResponseWriter.WriteHeader(status)
		return
	}
	h.close()
	h.dropped = status != http.StatusOK || !strings.HasPrefix(h.header.Get("Content-Type"), front.TypeEvents)
}

// Write implements http.ResponseWriter.
func (h *held) Write(b []byte) (int, error) {
	if h.dropped {
		return len(b), nil
	}
	return h.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (h *held) Unwrap() http.ResponseWriter { return h.ResponseWriter }
