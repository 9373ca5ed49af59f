package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Server is one process that speaks MCP on its standard input and output.
type Server struct {
	pool    *Pool
	process *launcher.Process
	label   string
	begin   time.Time

	started     func() // lets the next process start; only the first call has an effect
	closeOnce   sync.Once
	closing     chan struct{}
	outputTaken atomic.Bool // a reader has the output, or the process has ended
	broke       atomic.Bool // the process has closed a pipe
	stopped     atomic.Bool // the adapter has asked the process to end, while it ran
	tentative   atomic.Bool // the first request may be one that the process need not know
	spoke       atomic.Bool // the process has written to its output
	unused      atomic.Bool // the process was started before a client wanted one

	writing  chan struct{} // holds an element while a goroutine writes
	frame    []byte
	deadline time.Time // of writes, as set last
	broken   error     // not nil after a partial write, which no other message can follow

	junkLines int // counted by the goroutine that reads the output
}

func newServer(pool *Pool, process *launcher.Process, label string) *Server {
	s := &Server{pool: pool, process: process, label: label, begin: time.Now(), closing: make(chan struct{}), writing: make(chan struct{}, 1)}
	s.started = sync.OnceFunc(func() { <-pool.starting })
	hold := time.AfterFunc(pool.options.StartHold, s.started)
	process.AfterEnd(func() {
		hold.Stop()
		s.started()
		if !s.stopped.Load() {
			pool.metrics.Crashes.Add(1)
		}
		pool.noteEnd(s)
		_ = process.Stdin.Close()
		if s.outputTaken.CompareAndSwap(false, true) {
			_ = process.Stdout.Close()
		}
		pool.ended(s)
	})
	return s
}

func (s *Server) dead() bool {
	select {
	case <-s.process.Done():
		return true
	default:
		return false
	}
}

// noteOutput records that the process has written to its output, which lets the next process start.
func (s *Server) noteOutput() {
	if s.spoke.Load() || s.spoke.Swap(true) {
		return
	}
	s.started()
	if !s.unused.Load() {
		s.pool.pace.started(time.Since(s.begin), s.pool.options.StartHold)
	}
}

// noteStop records that the adapter asks the process to end. A dead process has ended by itself. So
// has one that has closed a pipe, because pipes often end a moment before the process.
func (s *Server) noteStop() {
	if !s.dead() && !s.broke.Load() {
		s.stopped.Store(true)
	}
}

// stop ends the process by TERM, and by KILL after the grace period.
func (s *Server) stop(grace time.Duration) {
	s.noteStop()
	s.process.Stop(grace)
}

// Tentative says that the first request may be one that the process need not know, and that some
// processes end upon. Such an end does not count as a crash in Pool.Processes.
func (s *Server) Tentative() { s.tentative.Store(true) }

// Label returns the number in front of each line of the process's standard error.
func (s *Server) Label() string { return s.label }

// smallFrame is the size up to which a message and its frame are one write. For a larger
// message the copy costs more than a second write.
const smallFrame = 64 << 10

// Send writes one message. Messages never mix. If a process does not read in time and has got a part
// of the message, Send ends the process.
func (s *Server) Send(ctx context.Context, message session.Message) error {
	now := time.Now()
	due := now.Add(s.pool.options.SendTimeout)
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(due) {
		due = sooner
	}
	if !s.lockWriting(due) {
		return fmt.Errorf("wait to write to server process: %w", os.ErrDeadlineExceeded)
	}
	defer func() { <-s.writing }()
	if s.broken != nil {
		return s.broken
	}
	if err := s.limitWrite(now, due); err != nil {
		return fmt.Errorf("write to server process: %w", err)
	}
	written, err := s.write(message.Bytes)
	if err == nil {
		return nil
	}
	s.notePipe(err)
	err = fmt.Errorf("write to server process: %w", err)
	if written > 0 {
		s.broken = err
		s.stop(0)
	}
	return err
}

// lockWriting waits until no other goroutine writes. It returns false if that takes too long.
func (s *Server) lockWriting(due time.Time) bool {
	select {
	case s.writing <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case s.writing <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

// limitWrite sets the deadline for a message. It keeps an earlier deadline with enough
// time left, because each change costs a timer.
func (s *Server) limitWrite(now, due time.Time) error {
	if !s.deadline.After(due) && s.deadline.Sub(now) > s.pool.options.SendTimeout/2 {
		return nil
	}
	s.deadline = due
	return s.process.Stdin.SetWriteDeadline(due)
}

// notePipe records that the process has closed its input or its output, if the error says so.
func (s *Server) notePipe(err error) {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF) {
		s.broke.Store(true)
	}
}

func (s *Server) write(message []byte) (int, error) {
	if len(message) > smallFrame && s.pool.options.Framing == rpc.Newline {
		n, err := s.process.Stdin.Write(message)
		if err != nil {
			return n, err
		}
		_, err = s.process.Stdin.Write([]byte{'\n'})
		return n, err
	}
	frame := rpc.AppendFrame(s.frame[:0], message, s.pool.options.Framing)
	if cap(frame) <= 2*smallFrame { // a larger buffer would stay for the session's life
		s.frame = frame
	}
	return s.process.Stdin.Write(frame)
}

// Close asks the process to end: by the end of its input, then by TERM, then by KILL. It does not
// wait.
func (s *Server) Close() {
	s.closeOnce.Do(func() {
		close(s.closing)
		s.noteStop()
		_ = s.process.Stdin.Close() // the process has no input afterwards, even if this fails
		terminate := time.AfterFunc(s.pool.options.EOFGrace, func() { s.stop(s.pool.options.TermGrace) })
		s.process.AfterEnd(func() { terminate.Stop() })
	})
}

// reasonGrace is how long Serve waits for a process to exit after its output has ended.
// On a busy node the kernel reports the exit late. Callers that wait for the reason wait
// longer than this.
const reasonGrace = time.Second

// Serve reads the process's messages until it ends, and then calls ended with the reason.
// Each caller of Acquire calls Serve, ServeSession or Pipes once.
//
// A panic in receive ends the adapter, and the kubelet restarts it. If the adapter recovered, a lock
// that receive holds could stay locked, and all clients would hang.
func (s *Server) Serve(receive func(session.Message), ended func(error)) {
	s.serve(s.read, receive, ended)
}

// ServeSession is Serve for a process that serves one session. A panic in receive ends only that
// session. So receive must hold no lock that other sessions need, and must release its own locks when
// it panics.
func (s *Server) ServeSession(receive func(session.Message), ended func(error)) {
	s.serve(s.readSafely, receive, ended)
}

func (s *Server) serve(read func(func(session.Message)) error, receive func(session.Message), ended func(error)) {
	if !s.outputTaken.CompareAndSwap(false, true) {
		go func() { ended(s.reason(io.EOF)) }() // the process died before its first use
		return
	}
	s.process.AfterEnd(func() { _ = s.process.Stdout.SetReadDeadline(time.Now().Add(exitGrace)) })
	go func() {
		err := read(receive)
		ended(s.reason(err))
		_ = s.process.Stdout.Close()
	}()
}

// readSafely recovers from panics, so that a bug of the adapter ends only one session.
func (s *Server) readSafely(receive func(session.Message)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the adapter made a mistake: %v", p)
			s.pool.metrics.Panics.Add(1)
			s.pool.options.Log.Error(err, "Ending a session because of a panic", "session", s.label, "stack", string(debug.Stack()))
			s.stop(0)
		}
	}()
	return s.read(receive)
}

func (s *Server) read(receive func(session.Message)) error {
	options := &s.pool.options
	reader := rpc.NewFrameReader(&remainingReader{s.process.Stdout, remainingBytes}, options.Framing, options.LineBytes, s.junk)
	room := options.Memory.Account(nil)
	reader.Bound(func(total int) error { return room.Reach(total, s.closing) })
	defer func() { room.Change(-int(room.Held())) }()
	var turn turns
	defer turn.close()
	for {
		message, err := reader.Next()
		if err != nil {
			s.notePipe(err)
			return err
		}
		turn.took(reader.Waited())
		s.noteOutput()
		batch := rpc.IsBatch(message)
		owned := !batch && reader.Release()
		var held *budget.Account // has room for the message, or for a copy
		if owned || batch && len(message) > rpc.FreeBuffer {
			held = room
		}
		if batch {
			s.receiveBatch(message, held, receive)
		} else {
			s.receiveOne(message, owned, held, receive)
		}
	}
}

// receiveOne takes a message. If owned is true, the reader never overwrites its bytes. If room
// is not nil, it has room for the message.
func (s *Server) receiveOne(message []byte, owned bool, room *budget.Account, receive func(session.Message)) {
	envelope, err := rpc.ScanLenient(message) // which refuses invalid UTF-8
	if err != nil && !utf8.Valid(message) {
		message = []byte(strings.ToValidUTF8(string(message), "\ufffd"))
		envelope, err = rpc.ScanLenient(message)
	}
	if err != nil {
		s.junk(message)
		return
	}
	receive(session.Message{Bytes: message, Envelope: envelope, Owned: owned, Charged: room != nil, Room: room})
}

// receiveBatch takes the messages of a batch, which some servers of revision 2025-03-26
// send. The room of the batch is for copies of its messages: its buffer is given back after
// them.
func (s *Server) receiveBatch(batch []byte, room *budget.Account, receive func(session.Message)) {
	err := rpc.Batch(batch, func(message []byte) error {
		s.receiveOne(message, false, room, receive)
		return nil
	})
	if err != nil {
		s.junk(batch)
	}
}

// loudJunk is how many lines that are no messages the log shows at its default level. They explain why
// a server does not answer.
const loudJunk = 5

func (s *Server) junk(line []byte) {
	s.pool.metrics.JunkLines.Add(1)
	const most = 200
	level := 0
	if s.junkLines++; s.junkLines > loudJunk {
		level = 1
	}
	s.pool.options.Log.V(level).Info("Server wrote text that is not MCP to standard output",
		"session", s.label, "line", rpc.Legible(line, most))
}

// reason returns why the process's output has ended. It ends a process that still runs.
func (s *Server) reason(readErr error) error {
	select {
	case <-s.closing:
		return session.ErrEnded
	default:
	}
	options := &s.pool.options
	switch {
	case errors.Is(readErr, rpc.ErrFrameTooLong):
		s.pool.metrics.Oversized.Add(1)
		s.stop(0)
		return fmt.Errorf("the server sent a message of more than %d bytes, the limit, which %s sets", options.LineBytes, options.LineBytesName)
	case errors.Is(readErr, budget.ErrNoRoom):
		s.pool.metrics.Unaffordable.Add(1)
		s.stop(0)
		return fmt.Errorf("%w: raise %s", readErr, options.MemoryName)
	}
	select {
	case <-s.process.Done():
	case <-time.After(reasonGrace):
		// The process has closed its output and runs on. Without output it can serve no session.
		s.stop(options.TermGrace)
		if errors.Is(readErr, io.EOF) {
			return errors.New("the server closed its standard output")
		}
		return fmt.Errorf("the server's output could not be read: %w", readErr)
	}
	return &ExitError{s.process.Exit()}
}
