package launcher

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// maxQueued bounds what waits for the container's standard error.
const maxQueued = 1 << 20

// sink is the one writer of the container's standard error. The reader of that pipe,
// usually the container runtime, may be slow or stuck. The sink never makes a process
// wait for it: it drops and counts lines that do not fit, and logs the count.
type sink struct {
	w       io.Writer
	wake    chan struct{}
	idle    chan struct{} // closed when run has returned
	mu      sync.Mutex
	queue   []byte
	dropped int
	closed  bool
}

func newSink(w io.Writer) *sink {
	s := &sink{w: w, wake: make(chan struct{}, 1), idle: make(chan struct{})}
	go s.run()
	return s
}

// line queues one line, without its end.
func (s *sink) line(prefix string, text []byte) {
	s.mu.Lock()
	switch {
	case s.closed:
	case len(s.queue)+len(prefix)+len(text)+1 > maxQueued:
		s.dropped++
	default:
		s.queue = append(append(append(s.queue, prefix...), text...), '\n')
	}
	s.mu.Unlock()
	s.nudge()
}

// logf queues a line of the launcher itself.
func (s *sink) logf(format string, args ...any) {
	s.line("launcher: ", fmt.Appendf(nil, format, args...))
}

func (s *sink) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sink) run() {
	defer close(s.idle)
	var batch []byte
	for range s.wake {
		for {
			s.mu.Lock()
			batch, s.queue = s.queue, batch[:0]
			dropped, closed := s.dropped, s.closed
			s.dropped = 0
			s.mu.Unlock()
			if dropped > 0 {
				batch = fmt.Appendf(batch, "launcher: %d lines of standard error were dropped, because the reader of this log is too slow\n", dropped)
			}
			if len(batch) == 0 {
				if closed {
					return
				}
				break
			}
			_, _ = s.w.Write(batch) // the launcher has no other place for an error
		}
	}
}

// close writes the queue, within the limit.
func (s *sink) close(limit time.Duration) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.nudge()
	select {
	case <-s.idle:
	case <-time.After(limit):
	}
}
