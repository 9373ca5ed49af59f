// Package audit writes one JSON line for each decision about a request, in the vocabulary of Kubernetes
// audits.
package audit

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// Event is what a line says. It has no arguments, results, tokens or session ids.
type Event struct {
	Received  time.Time
	Completed time.Time
	Verb      string             // the method of the message, session/begin, session/end, or http/post and the like before a message is read
	Identity  *identity.Identity // nil for a caller without a verified token
	Namespace string             // of the MCPServer
	Server    string             // its name
	Kind      string             // tools, prompts or resources; may be empty, and then Name does not count
	Name      string             // of the tool or prompt, or the URI of the resource
	Address   string             // of the client
	UserAgent string
	Session   string // its number in the log; may be empty
	Status    int    // of HTTP; 0 if the client went away
	Code      int    // of the JSON-RPC error; 0 if there is none
	ToolError bool   // the tool ran, and failed
	Denied    string // why the request is denied; empty if it is allowed
	Rule      int    // index of the rule that allows it, or -1
	Access    int64  // generation of the access document
	Trace     string // traceparent; may be empty
}

// BufferBytes is how much a Log holds that is not written yet. Events fill one half of it while the
// goroutine writes the other.
const BufferBytes = 1 << 20

// retryAfter is how long the goroutine waits after a write has failed.
const retryAfter = 100 * time.Millisecond

// Log writes events in the order in which they are added.
type Log struct {
	w      io.Writer
	report func(error)

	mu       sync.Mutex
	filled   []byte         // whole lines that wait for the goroutine; its capacity never changes
	denied   int            // bytes of them that are about denied requests
	reserved int            // bytes that are promised to lines of requests in flight
	shares   map[string]int // bytes of them, by caller; without callers that have none
	closed   bool
	id       [16]byte // of the last line; a local variable could move to the heap

	wake    chan struct{} // has room for one: the goroutine then finds filled not empty
	closing chan struct{}
	done    chan struct{} // the goroutine has ended

	abandoned context.Context // the time for Close is over
	abandon   context.CancelFunc

	lost     atomic.Uint64
	failures atomic.Uint64
}

// New returns a Log that writes to w from a goroutine of its own. The Log keeps what it could not write,
// and tries again. It reports the first failure, and no other; report may be nil.
//
// If w is the standard output, the program must handle or ignore SIGPIPE. Otherwise the first write to a
// pipe without a reader ends the program.
func New(w io.Writer, report func(error)) *Log {
	l := &Log{
		w:      w,
		report: report,
		// The system gives memory to a half only when lines fill it, so a quiet Log is small.
		filled:  make([]byte, 0, BufferBytes/2),
		shares:  map[string]int{},
		wake:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
	}
	l.abandoned, l.abandon = context.WithCancel(context.Background())
	go l.run(make([]byte, 0, BufferBytes/2))
	return l
}

// Add adds an event. It never waits for a write. It returns false, and counts the event as lost, if the
// Log is full or closed. Lines of denied requests fill half of the room at most: clients without any right
// can cause as many as they like.
func (l *Log) Add(e *Event) bool { return l.add(e, "", 0, false) }

func (l *Log) add(e *Event, of string, room int, promised bool) bool {
	l.mu.Lock()
	l.releaseLocked(of, room)
	first := len(l.filled) == 0
	added := l.addLocked(e, promised)
	l.mu.Unlock()
	if !added {
		l.lost.Add(1)
		return false
	}
	if first {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return true
}

func (l *Log) addLocked(e *Event, promised bool) bool {
	isDenied := e.Denied != ""
	if l.closed || !promised && (l.full() || isDenied && l.denied >= cap(l.filled)/2) {
		return false
	}
	_, _ = rand.Read(l.id[:]) // it ends the program rather than return an error
	size := len(appendEvent(l.free(), l.id, e))
	if size > l.room() {
		return false
	}
	l.filled = l.filled[:len(l.filled)+size]
	if isDenied {
		l.denied += size
	}
	return true
}

// free returns the end of the buffer that has no lines.
func (l *Log) free() []byte { return l.filled[len(l.filled):] }

// room returns how many bytes are neither filled nor promised.
func (l *Log) room() int { return cap(l.filled) - len(l.filled) - l.reserved }

// Full reports whether the buffer has no room for an event of the largest size. Add then adds no event,
// however small it is.
func (l *Log) Full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full()
}

func (l *Log) full() bool { return l.closed || l.room() < maxLine }

// Lost returns how many events were lost.
func (l *Log) Lost() uint64 { return l.lost.Load() }

// Failures returns how many writes failed. No event is lost by a failure alone.
func (l *Log) Failures() uint64 { return l.failures.Load() }

// Close writes what the buffer holds, and ends the goroutine. When ctx is done first, Close returns an
// error. The goroutine then ends as soon as the write that it is in returns, and counts the other events
// as lost.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
	l.mu.Unlock()

	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		l.abandon()
		return fmt.Errorf("write the last audit events: %w", ctx.Err())
	}
}

// run writes lines until the Log is closed and empty, or abandoned. It begins with the other half of the
// buffer.
func (l *Log) run(spare []byte) {
	defer close(l.done)
	for closing := false; !closing; {
		select {
		case <-l.wake:
		case <-l.closing:
			closing = true
		}
		for lines := l.swap(spare); len(lines) > 0; lines = l.swap(lines) {
			l.write(lines)
			spare = lines
		}
	}
}

// swap takes the lines that wait, and has new ones fill the other half.
func (l *Log) swap(spare []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.filled) == 0 {
		return nil
	}
	lines := l.filled
	l.filled, l.denied = spare[:0], 0
	return lines
}

// write writes the lines, however often it must try. After a failure it goes on with the byte that the
// failed write ended at, so that no line is torn.
func (l *Log) write(lines []byte) {
	for len(lines) > 0 {
		if l.abandoned.Err() != nil {
			l.lost.Add(uint64(bytes.Count(lines, []byte{'\n'}))) //nolint:gosec // a count is not negative
			return
		}
		n, err := l.w.Write(lines)
		lines = lines[min(max(n, 0), len(lines)):]
		if err == nil && len(lines) > 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			l.failed(err)
		}
	}
}

// failed counts a failure, and waits until it is time for the next try.
func (l *Log) failed(err error) {
	if l.failures.Add(1) == 1 && l.report != nil {
		l.report(fmt.Errorf("write audit events: %w", err))
	}
	select {
	case <-time.After(retryAfter):
	case <-l.abandoned.Done():
	}
}
