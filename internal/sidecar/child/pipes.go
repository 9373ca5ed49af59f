package child

import (
	"errors"
	"io"
)

// ErrTaken says that somebody reads the process's output already, or that it is dead.
var ErrTaken = errors.New("the server's output is not to be had")

// Pipes hands out the process's output and input, to be used instead of Serve and
// Send. Whoever takes them calls Close in the end.
func (s *Server) Pipes() (output io.Reader, input io.WriteCloser, err error) {
	if !s.outputTaken.CompareAndSwap(false, true) {
		return nil, nil, ErrTaken
	}
	s.process.AfterEnd(func() { _ = s.process.Stdout.Close() })
	return &startedReader{s}, &askingWriter{s}, nil
}

// startedReader notes that a process which has said something has started.
type startedReader struct{ server *Server }

func (r *startedReader) Read(p []byte) (int, error) {
	n, err := r.server.process.Stdout.Read(p)
	if n > 0 {
		r.server.started()
	}
	r.server.noteOutput(err)
	return n, err
}

// askingWriter knows that a process whose input is closed is asked to end.
type askingWriter struct{ server *Server }

func (w *askingWriter) Write(p []byte) (int, error) {
	n, err := w.server.process.Stdin.Write(p)
	w.server.noteInput(err)
	return n, err
}

func (w *askingWriter) Close() error {
	w.server.ask()
	return w.server.process.Stdin.Close()
}

// Done is closed when the process has ended.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Reason says how the process ended, in words; it waits until it has. It is nil for
// one that was asked to end.
func (s *Server) Reason() error {
	exit := s.process.Exit()
	if s.asked.Load() {
		return nil
	}
	return &ExitError{exit}
}
