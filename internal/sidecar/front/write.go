package front

import (
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// WriteTimeout is the usual time for a client to read one piece of a response.
const WriteTimeout = 30 * time.Second

// pieceSize is the size of one write, which has one deadline.
const pieceSize = 64 << 10

// Interrupter can interrupt a long write.
type Interrupter interface {
	// Interruptible gets a function that interrupts the write that begins, and nil when the
	// write ends.
	Interruptible(interrupt func())
	// Wrote records that the client has read a piece.
	Wrote()
}

// Writer writes the body of a response. Each piece has a deadline of its own, so that a client
// that reads steadily gets a body of any size. The write fails if the client does not read.
type Writer struct {
	w           http.ResponseWriter
	control     *http.ResponseController
	timeout     time.Duration
	by          Interrupter // may be nil
	interrupted atomic.Bool
	failed      error
}

// NewWriter returns a Writer for a response. by may be nil.
func NewWriter(w http.ResponseWriter, timeout time.Duration, by Interrupter) *Writer {
	return &Writer{w: w, control: http.NewResponseController(w), timeout: timeout, by: by}
}

// Write writes all of the data. After an error, Write returns that error and writes nothing.
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
		if o.interrupted.Load() { // extend may have replaced the deadline of interrupt
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
	_ = o.control.SetWriteDeadline(time.Unix(1, 0)) // fails as in extend
}

// extend sets the deadline for the next write.
func (o *Writer) extend() {
	_ = o.control.SetWriteDeadline(time.Now().Add(o.timeout)) // fails only without a connection, as in tests
}

// WriteNow is Write, and then a flush: the data does not wait for more.
func (o *Writer) WriteNow(data []byte) error {
	if o.Write(data) == nil {
		o.failed = o.control.Flush()
	}
	return o.failed
}

// Close sets a deadline for the end of the response, which net/http writes.
func (o *Writer) Close() {
	if o.failed == nil {
		o.extend()
	}
}

// saidLength is the size up to which net/http sets the Content-Length itself.
const saidLength = 2 << 10

// jsonType is shared, so that a response does not allocate it.
var jsonType = []string{TypeJSON}

// WriteJSON answers with a body of JSON. It ignores write errors: the client has gone then. by
// may be nil.
func WriteJSON(w http.ResponseWriter, status int, body []byte, timeout time.Duration, by Interrupter) {
	header := w.Header()
	header["Content-Type"] = jsonType
	if len(body) > saidLength {
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	if len(body) <= pieceSize {
		_, _ = w.Write(body) // needs no deadline: it fits into the buffers of the connection
		return
	}
	_ = NewWriter(w, timeout, by).Write(body)
}
