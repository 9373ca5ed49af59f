package launcher

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	maxLine    = 8 << 10  // the log has longer lines in pieces
	readBuffer = 16 << 10 // held only while there is something to read

	// lastReads is enough for the largest pipe of a process.
	lastReads = 1<<20/readBuffer + 1
)

var readBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// stderrPump reads the standard error of one process for as long as any process has it
// open. It logs each line, and keeps the beginning and the end.
type stderrPump struct {
	file   *os.File
	prefix string
	sink   *sink
	done   chan struct{} // closed when no process holds the write end
	heard  chan struct{} // closed when the pump has read everything written before hurry

	line []byte // without its end yet

	mu    sync.Mutex
	total int64  // bytes that the process has written
	first []byte // the first of them, up to maxHead
	last  []byte // the last of them, up to twice maxTail, so that the pump moves them rarely
}

func newStderrPump(fd int, label string, sink *sink) *stderrPump {
	return &stderrPump{
		file:   os.NewFile(uintptr(fd), "stderr"),
		prefix: "[" + label + "] ",
		sink:   sink,
		done:   make(chan struct{}),
		heard:  make(chan struct{}),
	}
}

func (p *stderrPump) run() {
	defer close(p.done)
	defer func() { _ = p.file.Close() }()
	raw, err := p.file.SyscallConn()
	if err != nil {
		return
	}
	for end := false; !end; {
		err := raw.Read(func(fd uintptr) bool {
			var ready bool
			ready, end = p.readOnce(int(fd))
			return ready
		})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			end, err = p.catchUp(raw)
		}
		if err != nil {
			break
		}
	}
	p.flush()
}

// hurry makes run read what the pipe holds without waiting for more. It is for a process
// that has ended: all that it wrote is there. A process that left its group may keep the
// pipe open.
func (p *stderrPump) hurry() {
	_ = p.file.SetReadDeadline(time.Unix(1, 0)) // fails after the end, when the pump has read everything
}

// catchUp reads what is in the pipe without waiting for more.
func (p *stderrPump) catchUp(raw syscall.RawConn) (end bool, err error) {
	err = raw.Control(func(fd uintptr) {
		for n, ready := 0, true; ready && !end && n < lastReads; n++ {
			ready, end = p.readOnce(int(fd))
		}
	})
	close(p.heard)
	return end, errors.Join(err, p.file.SetReadDeadline(time.Time{}))
}

// flush logs a last line without an end.
func (p *stderrPump) flush() {
	if len(p.line) > 0 {
		p.sink.line(p.prefix, p.line)
	}
}

// readOnce reads what the pipe has. It takes a buffer only for the read, so that an idle
// process holds none.
func (p *stderrPump) readOnce(fd int) (ready, end bool) {
	buffer := readBuffers.Get().(*[readBuffer]byte)
	defer readBuffers.Put(buffer)
	for {
		n, err := syscall.Read(fd, buffer[:])
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return false, false
		case err != nil || n == 0:
			return true, true
		default:
			p.take(buffer[:n])
			return true, false
		}
	}
}

func (p *stderrPump) take(data []byte) {
	p.remember(data)
	for len(data) > 0 {
		text, rest, ended := bytes.Cut(data, []byte{'\n'})
		if room := maxLine - len(p.line); len(text) > room {
			text, rest, ended = data[:room], data[room:], true
		}
		data = rest
		switch {
		case !ended:
			p.line = append(p.line, text...)
		case len(p.line) == 0:
			p.sink.line(p.prefix, text)
		default:
			p.sink.line(p.prefix, append(p.line, text...))
			p.line = nil
		}
	}
}

func (p *stderrPump) remember(data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total += int64(len(data))
	if room := maxHead - len(p.first); room > 0 {
		p.first = append(p.first, data[:min(len(data), room)]...)
	}
	if len(data) > maxTail {
		p.last = append(p.last[:0], data[len(data)-maxTail:]...)
		return
	}
	if len(p.last)+len(data) > 2*maxTail {
		p.last = append(p.last[:0], p.last[len(p.last)-maxTail:]...)
	}
	p.last = append(p.last, data...)
}

// ends returns the beginning and the end of what the process wrote. They do not overlap.
// The head is empty if the tail is everything. Both consist of whole lines where
// possible.
func (p *stderrPump) ends() (head, tail string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last[max(len(p.last)-maxTail, 0):]
	if int64(len(last)) < p.total {
		if _, whole, found := bytes.Cut(last, []byte{'\n'}); found && len(whole) > 0 {
			last = whole
		}
	}
	before := p.total - int64(len(last))
	if before <= int64(len(p.first)) {
		return string(p.first[:before]), string(last) // there is nothing between the two
	}
	first := p.first
	if end := bytes.LastIndexByte(first, '\n'); end >= 0 {
		first = first[:end+1]
	}
	return string(first), string(last)
}
