package formodern

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/shared"
	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
)

// outgoing is a message of ours that nobody waits for to be written.
type outgoing struct {
	text    []byte
	request bool
}

const (
	// queueBytes is how much may wait for a process that nobody waits for to have read it.
	queueBytes = 1 << 20
	// busyPause is before what was not taken is sent again.
	busyPause = 50 * time.Millisecond
	// reasonGrace is how long a failed write waits for the reader of the process's output
	// to say that the process has ended, and why. The reader itself waits a second for the
	// exit code.
	reasonGrace = 3 * time.Second
)

// isBusy says whether a message was not taken by a server that takes others, later: it
// may be a session, which has as many calls as it may have, or as much on its way.
func isBusy(err error) bool {
	for _, busy := range []error{session.ErrTooManyCalls, session.ErrServerBusy, shared.ErrBusy, stateless.ErrBusy} {
		if errors.Is(err, busy) {
			return true
		}
	}
	return false
}

// sendLocked has a message written after those before it, without waiting: whoever reads
// the process's output must not wait for it to read.
func (w *worker) sendLocked(message []byte) { w.enqueueLocked(outgoing{text: message}) }

// sendLater has messages written that were not taken when somebody waited for it.
func (w *worker) sendLater(messages [][]byte) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for _, message := range messages {
		w.sendLocked(message)
	}
}

func (w *worker) enqueueLocked(message outgoing) {
	if w.dead != nil {
		return
	}
	if w.queued > queueBytes {
		w.dismissLocked(errUnread)
		return
	}
	w.queue = append(w.queue, message)
	w.queued += len(message.text)
	if !w.writing {
		w.writing = true
		go w.write()
	}
}

// write sends what waits. A session may take no requests for as long as it has too many
// calls; then what may end these goes first.
func (w *worker) write() {
	held := false // requests have to wait
	for {
		next, more := w.next(held)
		switch {
		case next != nil:
		case more:
			w.pause()
			held = false
			continue
		default:
			return
		}
		err := w.child.Send(context.Background(), nil, next.text)
		switch {
		case err == nil:
			w.read()
		case isBusy(err):
			w.putBack(*next)
			if held = next.request; !held {
				w.pause()
			}
		case isUnread(err) && !w.stillUnread():
			w.putBack(*next)
			w.pause()
		default:
			w.sendFailed(err)
			return
		}
	}
}

// next is what is to be written next: the oldest message, or if requests have to wait,
// the oldest other one. It says whether any waits.
func (w *worker) next(held bool) (next *outgoing, more bool) {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(w.queue) == 0 || w.dead != nil {
		w.writing, w.queue, w.queued = false, nil, 0
		return nil, false
	}
	for i, message := range w.queue {
		if held && message.request {
			continue
		}
		w.queue = slices.Delete(w.queue, i, i+1)
		w.queued -= len(message.text)
		return &message, true
	}
	return nil, true
}

// putBack has a message sent again. It was the oldest of its kind.
func (w *worker) putBack(message outgoing) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.queue = slices.Insert(w.queue, 0, message)
	w.queued += len(message.text)
}

// read notes that the process reads.
func (w *worker) read() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.readLocked()
}

func (w *worker) pause() {
	select {
	case <-w.over:
	case <-time.After(busyPause):
	}
}

// sendFailed ends a process that could not be sent something.
func (w *worker) sendFailed(err error) {
	select {
	case <-w.over:
	case <-time.After(reasonGrace):
		w.fail(fmt.Errorf("%w: %w", errUnread, err))
	}
}
