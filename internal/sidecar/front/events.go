package front

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// KeepAliveInterval is how long an event stream is usually silent before it has a comment.
const KeepAliveInterval = 15 * time.Second

// Events is an answer that is an event stream. It gathers events, to write them in one go.
// While it is silent it has comments, so that the connection is kept alive, and a client
// that does not read is noticed.
type Events struct {
	buffer []byte  // what was gathered
	pooled *[]byte // where the buffer is from; nil without one

	mu    sync.Mutex // held while something is written
	out   *Writer
	timer *time.Timer // until the next comment; nil without comments
	every time.Duration
	gone  func() // called when the client does not take a comment
	over  bool
	tail  []byte // the last bytes that were relayed
}

// StartEvents begins an answer that is an event stream. The type and the caching that the
// headers name already stay. by may be nil.
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

// Prime gathers an event that says where the stream begins, and when a client may come back
// to it.
func (e *Events) Prime(id string, retry time.Duration) {
	e.buffer = rpc.AppendPriming(e.begin(), id, int(retry.Milliseconds()))
}

// Comment gathers a comment. Proxies hold headers back until something follows them (T-13).
func (e *Events) Comment() { e.buffer = append(e.begin(), rpc.KeepAlive...) }

// Full says whether enough is gathered to be written.
func (e *Events) Full() bool { return len(e.buffer) >= pieceSize }

// buffers are shared: a stream has one only while there is something to write.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

func (e *Events) begin() []byte {
	if e.pooled == nil {
		e.pooled = buffers.Get().(*[]byte) // nothing else is put there
		e.buffer = *e.pooled
	}
	return e.buffer
}

// Drop forgets what was gathered.
func (e *Events) Drop() {
	if e.pooled != nil && cap(e.buffer) <= 4*pieceSize { // one that a large event has grown is not kept
		*e.pooled = e.buffer[:0]
		buffers.Put(e.pooled)
	}
	e.buffer, e.pooled = nil, nil
}

// Flush writes what was gathered.
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

// Source is what an event stream is made of.
type Source interface {
	// Gather appends what there is, until the stream is Full. It says whether more may follow.
	Gather(to *Events) (more bool)
	// Wait waits until there is more to Gather, or the context ends. It may append, too.
	Wait(ctx context.Context, to *Events)
}

// Run writes what the source has, and a comment after each interval of silence. It reports
// whether the client was sent all of it. Otherwise the client has gone, or does not read.
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

// KeepAlive writes comments from now on, the first one after a time of its own. gone is
// called when the client does not take one.
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

// Relay writes bytes of another event stream, as they come.
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

// Close ends the writing. It says whether what was relayed, with comments, ends between two
// events.
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

// betweenEvents says whether a stream that ends so far with tail is at a place where an
// event may begin: at its start or after an empty line.
func betweenEvents(tail []byte) bool {
	lines := lineEnds.Replace(string(tail))
	return lines == "" || lines == "\n" || strings.HasSuffix(lines, "\n\n")
}

// lineEnds replaces each line end that event streams may have with a newline.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")
