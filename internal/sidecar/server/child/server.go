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

	startedOnce sync.Once
	closeOnce   sync.Once
	closing     chan struct{}
	outputTaken atomic.Bool // by a reader, or at the end of the process
	broke       atomic.Bool // a pipe has ended without the adapter, as both do with the process
	asked       atomic.Bool // by the adapter to end, while it lived

	writing  chan struct{} // holds an element while a goroutine writes
	frame    []byte
	deadline time.Time // of writes, as set last
	broken   error     // not nil after a partial write, which no other message can follow

	junkLines int // counted by the goroutine that reads the output
}

func newServer(pool *Pool, process *launcher.Process, label string) *Server {
	s := &Server{pool: pool, process: process, label: label, begin: time.Now(), closing: make(chan struct{}), writing: make(chan struct{}, 1)}
	hold := time.AfterFunc(pool.options.StartHold, s.started)
	process.AfterEnd(func() {
		hold.Stop()
		s.started()
		if !s.asked.Load() {
			pool.metrics.Crashes.Add(1)
		}
		_ = process.Stdin.Close()
		if s.outputTaken.CompareAndSwap(false, true) {
			_ = process.Stdout.Close()
		}
		pool.ended(s)
	})
	return s
}

// started lets the next process start.
func (s *Server) started() {
	s.startedOnce.Do(func() { <-s.pool.starting })
}

func (s *Server) dead() bool {
	select {
	case <-s.process.Done():
		return true
	default:
		return false
	}
}

// ask records that the adapter asks the process to end. A dead process has ended by
// itself. So has one with an ended pipe, since a pipe often ends a moment earlier.
func (s *Server) ask() {
	if !s.dead() && !s.broke.Load() {
		s.asked.Store(true)
	}
}

// stop ends the process by TERM, and by KILL after the grace.
func (s *Server) stop(grace time.Duration) {
	s.ask()
	s.process.Stop(grace)
}

// Label is the number in front of each line of the process's standard error.
func (s *Server) Label() string { return s.label }

// PID is the process's number in the PID namespace of the program that started it.
func (s *Server) PID() int { return s.process.PID }

// smallFrame is the size up to which a message and its frame are one write. For a larger
// message the copy costs more than a second write.
const smallFrame = 64 << 10

// Send writes one message. Messages never mix. If a process does not read in time and has
// got a part of the message, Send ends it.
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
	s.noteInput(err)
	err = fmt.Errorf("write to server process: %w", err)
	if written > 0 {
		s.broken = err
		s.stop(0)
	}
	return err
}

// lockWriting waits for its turn to write. It returns false if the turn does not come in
// time.
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

// noteInput records that the process has closed its input.
func (s *Server) noteInput(err error) {
	if errors.Is(err, syscall.EPIPE) {
		s.broke.Store(true)
	}
}

// noteOutput records that the process has closed its output.
func (s *Server) noteOutput(err error) {
	if errors.Is(err, io.EOF) {
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

// Close asks the process to end: by the end of its input, then by TERM, then by KILL. It
// returns at once.
func (s *Server) Close() {
	s.closeOnce.Do(func() {
		close(s.closing)
		s.ask()
		_ = s.process.Stdin.Close() // an error changes nothing: the process has no input afterwards
		go func() {
			select {
			case <-s.process.Done():
			case <-time.After(s.pool.options.EOFGrace):
				s.stop(s.pool.options.TermGrace)
			}
		}()
	})
}

// reasonGrace is how long Serve waits for a process to exit after its output has ended.
// On a busy node the kernel reports the exit late. Callers that wait for the reason wait
// longer than this.
const reasonGrace = time.Second

// Serve reads the process's messages until it ends, and then calls ended with the reason.
// Each caller of Acquire calls Serve, ServeSession or Pipes once.
//
// A panic in receive ends the adapter, and the kubelet restarts it: receive may hold a lock that
// all clients need, and without it they would hang.
func (s *Server) Serve(receive func(session.Message), ended func(error)) {
	s.serve(s.read, receive, ended)
}

// ServeSession is Serve for a process that one session has to itself. A panic ends that
// session and no other, so receive must hold no lock that others need, and must release its
// own when it panics.
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

// readSafely recovers from panics, so that a bug of the adapter ends one session only.
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
	reader := rpc.NewFrameReader(&lastWords{s.process.Stdout, lastBytes}, options.Framing, options.LineBytes, s.junk)
	room := budget.Room{Account: options.Memory.Account(nil), Stop: s.closing}
	reader.Bound(room.Reserve)
	defer func() { _ = room.Reserve(0) }()
	var turn turns
	defer turn.close()
	for {
		message, err := reader.Next()
		if err != nil {
			s.noteOutput(err)
			return err
		}
		turn.took(reader.Waited())
		s.started()
		batch := rpc.IsBatch(message)
		owned := !batch && reader.Release()
		var held *budget.Account // has room for the message, or for a copy
		if owned || batch && len(message) > rpc.FreeBuffer {
			held = room.Account
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

// loudJunk is how many lines of junk the log has at its default level: enough to
// understand why a server does not answer, and no flood.
const loudJunk = 5

func (s *Server) junk(line []byte) {
	s.pool.metrics.JunkLines.Add(1)
	const most = 200
	level := 0
	if s.junkLines++; s.junkLines > loudJunk {
		level = 1
	}
	s.pool.options.Log.V(level).Info("Server wrote to its standard output what is no message",
		"session", s.label, "line", rpc.Legible(line, most))
}

// tooLong is why Serve ends a process that sends too large a message.
func (o *Options) tooLong() error {
	text := fmt.Sprintf("the server sent a message of more than %d bytes, the limit", o.LineBytes)
	if o.LineBytesName != "" {
		text += ", which " + o.LineBytesName + " sets"
	}
	return errors.New(text)
}

// noRoom is why Serve ends a process whose message has no room in memory.
func (o *Options) noRoom(err error) error {
	if o.MemoryName == "" {
		return err
	}
	return fmt.Errorf("%w: raise %s", err, o.MemoryName)
}

// reason returns why the process's output has ended. It ends a process that lives on.
func (s *Server) reason(readErr error) error {
	select {
	case <-s.closing:
		return session.ErrEnded
	default:
	}
	if errors.Is(readErr, rpc.ErrFrameTooLong) {
		s.pool.metrics.Oversized.Add(1)
		s.stop(0)
		return s.pool.options.tooLong()
	}
	if errors.Is(readErr, budget.ErrNoRoom) {
		s.pool.metrics.Unaffordable.Add(1)
		s.stop(0)
		return s.pool.options.noRoom(readErr)
	}
	select {
	case <-s.process.Done():
	case <-time.After(reasonGrace):
		// The process has closed its output and lives on. Without output it is of no use.
		s.stop(s.pool.options.TermGrace)
		if errors.Is(readErr, io.EOF) {
			return errors.New("the server closed its standard output")
		}
		return fmt.Errorf("the server's output could not be read: %w", readErr)
	}
	return &ExitError{s.process.Exit()}
}
