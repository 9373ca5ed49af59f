package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Framing says how messages on standard input and output are told apart.
type Framing uint8

// The framings. The protocol knows the first only; some servers use the second.
const (
	Newline Framing = iota
	ContentLength
)

const (
	// largeBuffer is as much as a pipe can hold.
	largeBuffer = 64 << 10
	// FreeBuffer is the size up to which a FrameReader does not ask before it takes a buffer.
	FreeBuffer = largeBuffer
	// A header block has a line or two.
	maxHeaderLines = 16
)

var byteOrderMark = []byte("\ufeff")

// ErrFrameTooLong is returned when a message is larger than the limit. What
// follows it cannot be told apart any more.
var ErrFrameTooLong = errors.New("message is larger than the limit")

// FrameReader takes messages off what a server writes to its standard output.
// Servers write other things there too, such as banners and logs; these lines are
// handed to the junk function and skipped.
type FrameReader struct {
	source  io.Reader
	framing Framing
	limit   int
	junk    func(line []byte)
	reserve func(bytes int) error // may be nil

	raw     syscall.RawConn       // of the source, if it has one
	try     func(fd uintptr) bool // tryRead; made once, because each would be an allocation
	waited  bool                  // the reader has waited for the source
	pieces  [][]byte              // full buffers, with the beginning of a message that needs more
	buffer  []byte                // of the pool; what was read and not yet returned is buffer[start:]
	start   int
	scanned int  // bytes behind start that are known to hold no line break
	joined  bool // the last message has memory of its own
	began   bool
	err     error
}

// NewFrameReader reads messages of at most limit bytes from source.
func NewFrameReader(source io.Reader, framing Framing, limit int, junk func(line []byte)) *FrameReader {
	f := &FrameReader{source: source, framing: framing, limit: limit, junk: junk}
	if conn, ok := source.(syscall.Conn); ok && canReadNow {
		if raw, err := conn.SyscallConn(); err == nil {
			f.raw, f.try = raw, f.tryRead
		}
	}
	return f
}

// Bound has the reader ask before a message takes more than 64 KiB. The function gets the
// size of all buffers of the message, may wait, and ends the reader by an error. Next tells it
// with 0 that the reader needs them no longer: until then the message has the room that was
// asked for.
func (f *FrameReader) Bound(reserve func(bytes int) error) { f.reserve = reserve }

// Next returns the next candidate for a message: an object or an array by its first
// byte, not yet checked any further. It is valid until the next call. At the end of
// the output it returns io.EOF; a last line without a line break still counts.
func (f *FrameReader) Next() ([]byte, error) {
	if f.framing == ContentLength {
		return f.nextByHeader()
	}
	for {
		line, err := f.line()
		if err != nil {
			return nil, err
		}
		if isCandidate(line) {
			return line, nil
		}
		f.reportJunk(line)
	}
}

func isCandidate(line []byte) bool {
	first := firstOf(line, " \t")
	return first == '{' || first == '['
}

// firstOf is the first byte that is none of the blanks, or 0. bytes.TrimLeft makes a set of
// them each time, which took 0.7 % of the CPU of small calls.
func firstOf(text []byte, blanks string) byte {
	for _, c := range text {
		if strings.IndexByte(blanks, c) < 0 {
			return c
		}
	}
	return 0
}

func (f *FrameReader) reportJunk(line []byte) {
	if len(line) > 0 && f.junk != nil {
		f.junk(line)
	}
}

func (f *FrameReader) nextByHeader() ([]byte, error) {
	for {
		length, err := f.headers()
		if err != nil {
			return nil, err
		}
		if length > f.limit {
			return nil, fmt.Errorf("read message of %d bytes: %w", length, ErrFrameTooLong)
		}
		body, err := f.exactly(length)
		if err != nil {
			return nil, err
		}
		if isCandidate(bytes.TrimLeft(body, "\r\n")) {
			return body, nil
		}
		f.reportJunk(body)
	}
}

// headers reads header lines up to the empty one and returns the announced length.
// Lines that are no headers are junk that stands between messages.
func (f *FrameReader) headers() (int, error) {
	length, lines := -1, 0
	for {
		line, err := f.line()
		if err != nil {
			return 0, err
		}
		switch announced, isHeader := parseHeader(line); {
		case len(line) == 0 && length >= 0:
			return length, nil
		case announced >= 0:
			length, lines = announced, 1
		case length >= 0 && isHeader && lines < maxHeaderLines:
			lines++ // another header of the same message, such as Content-Type
		default:
			f.reportJunk(line)
		}
	}
}

// parseHeader returns the length that a line announces, or -1.
func parseHeader(line []byte) (length int, isHeader bool) {
	name, value, isHeader := bytes.Cut(line, []byte(":"))
	if !isHeader || !bytes.EqualFold(bytes.TrimSpace(name), []byte("Content-Length")) {
		return -1, isHeader
	}
	length, err := strconv.Atoi(string(bytes.TrimSpace(value)))
	if err != nil || length < 0 {
		return -1, false
	}
	return length, true
}

// line returns the next line without its ending.
func (f *FrameReader) line() ([]byte, error) {
	f.forget()
	for {
		pending := f.buffer[f.start:]
		if n := bytes.IndexByte(pending[f.scanned:], '\n'); n >= 0 {
			line := f.join(f.scanned + n)
			f.start++
			return f.trimmed(line)
		}
		f.scanned = len(pending)
		size := f.size()
		if size > f.limit+trimmable {
			return nil, f.tooLong()
		}
		if f.err != nil {
			if size == 0 || !errors.Is(f.err, io.EOF) {
				return nil, f.err
			}
			return f.trimmed(f.join(len(pending)))
		}
		f.fill()
	}
}

// trimmable is what a line may have on top of the limit, which is the message's: a
// byte order mark and its ending.
const trimmable = 5

func (f *FrameReader) trimmed(line []byte) ([]byte, error) {
	if !f.began {
		f.began = true
		line = bytes.TrimPrefix(line, byteOrderMark)
	}
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) > f.limit {
		return nil, f.tooLong()
	}
	return line, nil
}

func (f *FrameReader) tooLong() error {
	return fmt.Errorf("read line of more than %d bytes: %w", f.limit, ErrFrameTooLong)
}

func (f *FrameReader) exactly(n int) ([]byte, error) {
	f.forget()
	for f.size() < n {
		if f.err != nil {
			if errors.Is(f.err, io.EOF) {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, f.err
		}
		f.fill()
	}
	return f.join(n - len(f.pieces)*largeBuffer), nil
}

// size is how many bytes were read and not yet returned.
func (f *FrameReader) size() int { return len(f.pieces)*largeBuffer + len(f.buffer) - f.start }

// fill reads more.
func (f *FrameReader) fill() {
	if f.size() == 0 && f.raw != nil && f.await() {
		return
	}
	if f.start > 0 {
		f.buffer = f.buffer[:copy(f.buffer, f.buffer[f.start:])]
		f.start = 0
	}
	if len(f.buffer) == cap(f.buffer) {
		if f.err = f.enlarge(); f.err != nil {
			return
		}
	}
	n, err := f.source.Read(f.buffer[len(f.buffer):cap(f.buffer)])
	f.buffer = f.buffer[:len(f.buffer)+n]
	f.err = err
}

// enlarge takes another buffer. The reader does not copy what it has into a larger one each
// time: a message is copied once, when its size is known.
func (f *FrameReader) enlarge() error {
	if len(f.buffer) > 0 {
		if err := f.hold(f.size() + largeBuffer); err != nil {
			return fmt.Errorf("read message of more than %d bytes: %w", f.size(), err)
		}
		f.pieces, f.scanned = append(f.pieces, f.buffer), 0
	}
	f.buffer = buffers.Get().(*[largeBuffer]byte)[:0] // nothing else is put there
	return nil
}

// joining is held while a large message is copied into one piece, which takes twice its
// memory. All readers together need no more than that of one message.
var joining sync.Mutex

// join returns the message that ends with the next n bytes of the buffer.
func (f *FrameReader) join(n int) []byte {
	end := f.buffer[f.start : f.start+n]
	f.start += n
	f.scanned = 0
	if len(f.pieces) == 0 { // nearly always
		return end
	}
	joining.Lock()
	defer joining.Unlock()
	message := bytes.Join(append(f.pieces, end), nil) // which does not clear the memory first
	for _, piece := range f.pieces {
		recycle(piece)
	}
	f.pieces, f.joined = nil, true
	return message
}

// buffers are for readers that have something to read. A reader that waits has none: most
// servers say nothing most of the time.
var buffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

// recycle makes a buffer of the pool's that is not needed any more the next one's.
func recycle(buffer []byte) {
	if cap(buffer) == largeBuffer {
		buffers.Put((*[largeBuffer]byte)(buffer[:largeBuffer]))
	}
}

// await waits until there is something to read, and reads it. If it cannot, it is for the
// source itself to say why.
func (f *FrameReader) await() bool {
	recycle(f.buffer)
	f.buffer, f.start = nil, 0
	return f.raw.Read(f.try) == nil
}

// tryRead reads what is there, and says whether there was anything.
func (f *FrameReader) tryRead(fd uintptr) bool {
	buffer := buffers.Get().(*[largeBuffer]byte) // nothing else is put there
	n, err := ReadNow(fd, buffer[:])
	if errors.Is(err, syscall.EAGAIN) {
		buffers.Put(buffer)
		f.waited = true
		return false
	}
	f.buffer, f.err = buffer[:n], err
	return true
}

// Waited says whether the reader has waited for its source since it was asked last.
func (f *FrameReader) Waited() bool {
	waited := f.waited
	f.waited = false
	return waited
}

// Release gives a message that Next has just returned to the caller for good, if it has
// memory of its own, and says whether it has.
func (f *FrameReader) Release() bool { return f.joined }

// forget ends what the reader holds for the last message.
func (f *FrameReader) forget() {
	if f.joined {
		f.joined = false
		_ = f.hold(0) // it is less than before
	}
}

// hold reserves memory for messages. The reader's only buffer is free.
func (f *FrameReader) hold(bytes int) error {
	if f.reserve == nil {
		return nil
	}
	return f.reserve(bytes)
}

// AppendFrame appends a message, which must be one line, as a server reads it.
func AppendFrame(dst, message []byte, framing Framing) []byte {
	if framing == ContentLength {
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, int64(len(message)), 10)
		dst = append(dst, "\r\n\r\n"...)
		return append(dst, message...)
	}
	dst = append(dst, message...)
	return append(dst, '\n')
}
