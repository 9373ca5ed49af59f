package child

import (
	"errors"
	"io"
)

// ErrTaken says that another reader has the process's output, or that the process is
// dead.
var ErrTaken = errors.New("the server's output is not to be had")

// Pipes returns the process's output and input, for callers that use them instead of
// Serve and Send. The caller calls Close in the end.
func (s *Server) Pipes() (output io.Reader, input io.WriteCloser, err error) {
	if !s.outputTaken.CompareAndSwap(false, true) {
		return nil, nil, ErrTaken
	}
	s.process.AfterEnd(func() { _ = s.process.Stdout.Close() })
	return &startedReader{s}, &askingWriter{s}, nil
}

// startedReader takes the first output of a process as the end of its start.
type startedReader struct{ server *Server }

func (r *startedReader) Read(p []byte) (int, error) {
	n, err := r.server.process.Stdout.Read(p)
	if n > 0 {
		r.server.started()
	}
	r.server.noteOutput(err)
	return n, err
}

// askingWriter takes the closing of the input as a request to end.
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

// Done returns a channel that closes when the process has ended.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Reason waits for the end of the process and returns how it ended. It returns nil if the
// adapter has asked the process to end.
func (s *Server) Reason() error {
	exit := s.process.Exit()
	if s.asked.Load() {
		return nil
	}
	return &ExitError{exit}
}
