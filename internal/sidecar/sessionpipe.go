package sidecar

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

var errKeeperDone = errors.New("the keeper is done with it")

// keepSession lets the keeper look at a server through a session: it sees lines,
// as if it had the server's standard input and output.
func keepSession(opened *session.Session) (keeper.Connection, error) {
	stream, err := opened.Open()
	if err != nil {
		opened.End(errKeeperDone)
		return keeper.Connection{}, err
	}
	output, write := io.Pipe()
	read, input := io.Pipe()
	go func() { _ = write.CloseWithError(copyEvents(write, stream, opened)) }()
	go func() { opened.End(passLines(read, stream, opened)) }()
	return keeper.Connection{
		Target: mcpprobe.Pipes(output, input),
		Close: func() {
			opened.End(errKeeperDone)
			_ = output.Close()
			_ = read.Close()
		},
		Reason: func() error { return nil },
	}, nil
}

// copyEvents writes what arrives on the stream, a line each, until the session ends.
func copyEvents(to io.Writer, stream *session.Stream, opened *session.Session) error {
	return eachEvent(stream, opened, func(message []byte) error {
		_, err := to.Write(rpc.AppendFrame(nil, message, rpc.Newline))
		return err
	})
}

// eachEvent takes what arrives on the stream until the session ends.
func eachEvent(stream *session.Stream, opened *session.Session, take func(message []byte) error) error {
	defer stream.Detach()
	for {
		event, ok, end := stream.Take()
		switch {
		case ok:
			if err := take(event.Message); err != nil {
				return err
			}
		case end:
			return io.EOF
		default:
			select {
			case <-stream.Ready():
			case <-opened.Done():
			}
		}
	}
}

// passLines hands the keeper's messages to the session.
func passLines(from io.Reader, stream *session.Stream, opened *session.Session) error {
	lines := rpc.NewFrameReader(from, rpc.Newline, pendingBytes, nil)
	for {
		line, err := lines.Next()
		if err != nil {
			return errKeeperDone
		}
		envelope, err := rpc.Scan(line)
		if err != nil {
			return err
		}
		if err := passLine(session.Message{Bytes: line, Envelope: envelope}, stream, opened); err != nil {
			return err
		}
	}
}

func passLine(message session.Message, stream *session.Stream, opened *session.Session) error {
	if message.Envelope.Kind == rpc.Request {
		return opened.CallOn(context.Background(), stream, message)
	}
	return opened.Tell(context.Background(), message)
}

// inSessions makes servers of sessions: what is sent to one goes to whoever serves the
// session.
func inSessions(open opener) withSession {
	return func(ctx context.Context, from *caller.Caller) (mux.Server, error) {
		opened, err := open(ctx, from)
		if err != nil {
			return nil, err
		}
		stream, err := opened.Open()
		if err != nil {
			opened.End(session.ErrEnded)
			return nil, err
		}
		opened.AnswerCancelled = true
		return &sessionServer{opened: opened, stream: stream}, nil
	}
}

// sessionServer is a session as one who sends and receives all of its messages sees it.
type sessionServer struct {
	opened *session.Session
	stream *session.Stream

	mu       sync.Mutex
	sweeping bool
}

func (s *sessionServer) Send(_ context.Context, message session.Message) error {
	message, err := message.Scanned()
	if err != nil {
		return err
	}
	err = passLine(message, s.stream, s.opened)
	if message.Envelope.Kind == rpc.Request {
		s.sweepSoon()
	}
	return err
}

// sweepInterval is how exactly time-outs are kept.
const sweepInterval = time.Second

// sweepSoon has calls ended whose time is up, as nobody else does who knows the session.
// There is a timer while there are calls.
func (s *sessionServer) sweepSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sweeping {
		s.sweeping = true
		time.AfterFunc(sweepInterval, s.sweep)
	}
}

func (s *sessionServer) sweep() {
	s.mu.Lock()
	s.sweeping = false
	s.mu.Unlock()
	select {
	case <-s.opened.Done():
		return
	default:
	}
	s.opened.Sweep(context.Background(), time.Now())
	if s.opened.Busy() {
		s.sweepSoon()
	}
}

func (s *sessionServer) Serve(receive func(session.Message), ended func(error)) {
	go func() {
		_ = eachEvent(s.stream, s.opened, func(message []byte) error {
			if envelope, err := rpc.ScanLenient(message); err == nil { // as it was when it was delivered
				receive(session.Message{Bytes: message, Envelope: envelope})
			}
			return nil
		})
		s.opened.End(session.ErrEnded)
		ended(s.opened.EndedBy())
	}()
}

func (s *sessionServer) Close() { s.opened.End(session.ErrEnded) }
