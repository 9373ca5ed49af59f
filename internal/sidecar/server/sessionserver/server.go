// Package sessionserver makes a server of a session: the code that would send messages to a
// process sends them through the session, and receives all messages of the session.
package sessionserver

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// server is a session as a mux.Server.
type server struct {
	*session.Session
	stream *session.Stream // has all messages of the session

	mu       sync.Mutex
	sweeping bool // the timer of sweep runs
}

// newServer returns the server of a session. If it fails, the session ends.
func newServer(opened *session.Session) (*server, error) {
	stream, err := opened.Open()
	if err != nil {
		opened.End(session.ErrEnded)
		return nil, err
	}
	return &server{Session: opened, stream: stream}, nil
}

// New returns the server of a session. It takes the results of the function that opens the
// session, and returns the error if there is one.
func New(opened *session.Session, err error) (mux.Server, error) {
	if err != nil {
		return nil, err
	}
	opened.AnswerCancelled = true
	return newServer(opened)
}

// Send implements session.Server.
func (s *server) Send(_ context.Context, message session.Message) error {
	message, err := message.Scanned()
	if err != nil {
		return err
	}
	if message.Envelope.Kind != rpc.Request {
		return s.Tell(context.Background(), message)
	}
	defer s.sweepSoon()
	return s.CallOn(context.Background(), s.stream, message)
}

// sweepInterval is how late a call may end after its time-out.
const sweepInterval = time.Second

// sweepSoon has sweep called. The session is in no registry, which would end calls whose time
// is up. The timer runs only while calls are in flight.
func (s *server) sweepSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sweeping {
		s.sweeping = true
		time.AfterFunc(sweepInterval, s.sweep)
	}
}

func (s *server) sweep() {
	s.mu.Lock()
	s.sweeping = false
	s.mu.Unlock()
	select {
	case <-s.Done():
		return
	default:
	}
	s.Sweep(context.Background(), time.Now())
	if s.Busy() {
		s.sweepSoon()
	}
}

// Serve implements mux.Server.
func (s *server) Serve(receive func(session.Message), ended func(error)) {
	go func() {
		s.receive(receive)
		s.End(session.ErrEnded)
		ended(s.EndedBy())
	}()
}

// receive passes on each message of the stream until the session ends.
func (s *server) receive(receive func(session.Message)) {
	defer s.stream.Detach()
	for {
		event, ok, end := s.stream.Take()
		switch {
		case ok:
			if envelope, err := rpc.ScanLenient(event.Message); err == nil { // as it was when it was delivered
				receive(session.Message{Bytes: event.Message, Envelope: envelope})
			}
		case end:
			return
		default:
			select {
			case <-s.stream.Ready():
			case <-s.Done():
			}
		}
	}
}

// Close implements session.Server.
func (s *server) Close() { s.End(session.ErrEnded) }

var errKeeperDone = errors.New("the keeper is done with it")

// Connect lets the keeper watch a server through a session. The keeper reads and writes lines,
// as if they were the standard output and input of a process.
func Connect(opened *session.Session) (keeper.Connection, error) {
	s, err := newServer(opened)
	if err != nil {
		return keeper.Connection{}, err
	}
	output, write := io.Pipe()
	read, input := io.Pipe()
	s.Serve(func(message session.Message) {
		_, _ = write.Write(rpc.AppendFrame(nil, message.Bytes, rpc.Newline)) // which fails after Close
	}, func(error) { _ = write.Close() })
	go func() { s.End(s.sendLines(read)) }()
	return keeper.Connection{
		Target: mcpprobe.Pipes(output, input),
		Close: func() {
			s.End(errKeeperDone)
			_ = output.Close()
			_ = read.Close()
		},
		Reason: func(time.Duration) error { return nil },
	}, nil
}

// sendLines passes the keeper's messages to the session. It returns why the session ends.
func (s *server) sendLines(from io.Reader) error {
	lines := rpc.NewFrameReader(from, rpc.Newline, session.PendingBytes, nil)
	for {
		line, err := lines.Next()
		if err != nil {
			return errKeeperDone
		}
		if err := s.Send(context.Background(), session.Message{Bytes: line}); err != nil {
			return err
		}
	}
}
