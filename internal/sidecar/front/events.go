package front

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// KeepAliveInterval is the usual time without events after which the adapter writes a comment.
const KeepAliveInterval = 15 * time.Second

// Events writes an HTTP response with an event stream. It gathers events, to write several at
// once. While there are no events it writes comments, to keep the connection alive and to
// notice a client that does not read.
type Events struct {
	buffer []byte  // gathered events
	pooled *[]byte // the item of the pool that the buffer is from; nil without a buffer

	mu    sync.Mutex // held during a write
	out   *Writer
	timer *time.Timer // until the next comment; nil without comments
	every time.Duration
	gone  func() // called when the client does not read a comment
	over  bool
	tail  []byte // the last bytes of Relay
}

// StartEvents begins a response with an event stream. It keeps a Content-Type and a
// Cache-Control that the headers already have. by may be nil.
func StartEvents(w http.ResponseWriter, status int, timeout time.Duration, by Interrupter) *Events {
	header := w.Header()
	header.Del("Content-Length")
	header.Set("X-Accel-Buffering", "no")
	if header.Get("Content-Type") == "" {
		header.Set("Content-Type", TypeEvents)
	}
	if header.Get("Cache-Control") == "" {
		header.Set("Cache-Control", "no-cache, no-transform")
	}
	w.WriteHeader(status)
	return &Events{out: NewWriter(w, timeout, by)}
}

// Append gathers an event.
func (e *Events) Append(event rpc.Event) { e.buffer = rpc.AppendEvent(e.begin(), event) }

// Prime gathers an event with the id of the beginning of the stream, and the time after which
// a client may resume it.
func (e *Events) Prime(id string, retry time.Duration) {
	e.buffer = rpc.AppendPriming(e.begin(), id, int(retry.Milliseconds()))
}

// Comment gathers a comment. Proxies hold the headers back until data follows (T-13).
func (e *Events) Comment() { e.buffer = append(e.begin(), rpc.KeepAlive...) }

// Full reports whether there is enough for one write.
func (e *Events) Full() bool { return len(e.buffer) >= pieceSize }

// buffers are shared: a stream has one only while it has gathered events.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

func (e *Events) begin() []byte {
	if e.pooled == nil {
		e.pooled = buffers.Get().(*[]byte) // the pool has no other type
		e.buffer = *e.pooled
	}
	return e.buffer
}

// Drop drops the gathered events.
func (e *Events) Drop() {
	if e.pooled != nil && cap(e.buffer) <= 4*pieceSize { // the pool keeps no large buffers
		*e.pooled = e.buffer[:0]
		buffers.Put(e.pooled)
	}
	e.buffer, e.pooled = nil, nil
}

// Flush writes the gathered events.
func (e *Events) Flush() error {
	if len(e.buffer) == 0 {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.writeLocked(e.buffer)
	e.Drop()
	return err
}

func (e *Events) writeLocked(data []byte) error {
	if e.timer != nil {
		e.timer.Reset(e.every)
	}
	return e.out.WriteNow(data)
}

// Source has the events of an event stream.
type Source interface {
	// Gather appends the events that are ready, until the stream is Full. It reports whether
	// more may follow.
	Gather(to *Events) (more bool)
	// Wait waits until Gather may have events, or the context ends. It may append events, too.
	Wait(ctx context.Context, to *Events)
}

// Run writes the events of the source, and a comment after each interval without events. It
// returns false if the client has gone, or does not read.
func (e *Events) Run(ctx context.Context, interval time.Duration, from Source) (all bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.KeepAlive(interval, interval, cancel)
	defer e.Close()
	for ctx.Err() == nil {
		more := from.Gather(e)
		switch {
		case len(e.buffer) == 0 && more:
			from.Wait(ctx, e)
		case e.Flush() != nil:
			return false
		case !more:
			return true
		}
	}
	return false
}

// KeepAlive starts to write comments, with a time of its own until the first one. It calls gone
// if the client does not read a comment.
func (e *Events) KeepAlive(first, every time.Duration, gone func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.every, e.gone = every, gone
	e.timer = time.AfterFunc(first, e.keepAlive)
}

func (e *Events) keepAlive() {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.over:
	case !betweenEvents(e.tail):
		e.timer.Reset(e.every)
	case e.writeLocked([]byte(rpc.KeepAlive)) != nil:
		e.gone()
	}
}

// Relay writes bytes of the event stream of an HTTP server.
func (e *Events) Relay(data []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.writeLocked(data); err != nil {
		return err
	}
	const longest = len("\r\n\r\n")
	e.tail = append(e.tail, data[max(0, len(data)-longest):]...)
	e.tail = append(e.tail[:0], e.tail[max(0, len(e.tail)-longest):]...)
	return nil
}

// Close ends the writing. It reports whether KeepAlive was called, and the bytes of Relay end
// between two events.
func (e *Events) Close() (between bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if e.timer != nil {
		e.timer.Stop()
	}
	e.out.Close()
	return e.timer != nil && betweenEvents(e.tail)
}

// betweenEvents reports whether an event may begin after tail: at the start of the stream, or
// after an empty line.
func betweenEvents(tail []byte) bool {
	lines := lineEnds.Replace(string(tail))
	return lines == "" || lines == "\n" || strings.HasSuffix(lines, "\n\n")
}

// lineEnds replaces each line end that event streams may have with a newline.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")
