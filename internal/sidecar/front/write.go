package front

import (
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// WriteTimeout is how long a client usually has to read a piece of what it is sent.
const WriteTimeout = 30 * time.Second

// pieceSize is how much is written in one go, within one deadline.
const pieceSize = 64 << 10

// Interrupter can end a write that takes long.
type Interrupter interface {
	// Interruptible gets what ends the write that begins, and nil when it is over.
	Interruptible(interrupt func())
	// Wrote is called after each piece.
	Wrote()
}

// Writer writes to a client. The client has the time to read for every piece anew: one that
// reads steadily gets all of it, however large it is. One that does not is treated as gone.
type Writer struct {
	w           http.ResponseWriter
	control     *http.ResponseController
	timeout     time.Duration
	by          Interrupter // may be nil
	interrupted atomic.Bool
	failed      error
}

// NewWriter returns a Writer for the body of an answer. by may be nil.
func NewWriter(w http.ResponseWriter, timeout time.Duration, by Interrupter) *Writer {
	return &Writer{w: w, control: http.NewResponseController(w), timeout: timeout, by: by}
}

// Write writes all of the data. After an error nothing more is written.
func (o *Writer) Write(data []byte) error {
	if o.failed == nil {
		o.failed = o.write(data)
	}
	return o.failed
}

func (o *Writer) write(data []byte) error {
	long := o.by != nil && len(data) > pieceSize
	if long {
		o.by.Interruptible(o.interrupt)
		defer o.by.Interruptible(nil)
	}
	for piece := range slices.Chunk(data, pieceSize) {
		o.extend()
		if o.interrupted.Load() { // just before the deadline was put off
			return os.ErrDeadlineExceeded
		}
		if _, err := o.w.Write(piece); err != nil {
			return err
		}
		if long {
			o.by.Wrote()
		}
	}
	return nil
}

func (o *Writer) interrupt() {
	o.interrupted.Store(true)
	_ = o.control.SetWriteDeadline(time.Unix(1, 0)) // as in extend
}

// extend gives the client time for what is written next.
func (o *Writer) extend() {
	_ = o.control.SetWriteDeadline(time.Now().Add(o.timeout)) // where there is no connection, there is none
}

// WriteNow is Write for data that must not wait for more.
func (o *Writer) WriteNow(data []byte) error {
	if o.Write(data) == nil {
		o.failed = o.control.Flush()
	}
	return o.failed
}

// Close gives the client time for the end of the answer, which net/http writes.
func (o *Writer) Close() {
	if o.failed == nil {
		o.extend()
	}
}

// saidLength is the size of a body up to which net/http itself says how long it is.
const saidLength = 2 << 10

// Shared by all answers, so that none has to make its own.
var jsonType = []string{TypeJSON}

// WriteJSON answers with a body of JSON. by may be nil. The client has it then, or is gone.
func WriteJSON(w http.ResponseWriter, status int, body []byte, timeout time.Duration, by Interrupter) {
	header := w.Header()
	header["Content-Type"] = jsonType
	if len(body) > saidLength {
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	if len(body) <= pieceSize {
		_, _ = w.Write(body) // without a deadline: it fits into buffers, and the kernel gives clients up, too
		return
	}
	_ = NewWriter(w, timeout, by).Write(body)
}
