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
	go func() {
		<-s.process.Done()
		_ = s.process.Stdout.Close()
	}()
	return &startedReader{s}, s.process.Stdin, nil
}

// startedReader notes that a process which has said something has started.
type startedReader struct{ server *Server }

func (r *startedReader) Read(p []byte) (int, error) {
	n, err := r.server.process.Stdout.Read(p)
	if n > 0 {
		r.server.started()
	}
	return n, err
}

// Done is closed when the process has ended.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Reason says how the process ended, in words; it waits until it has.
func (s *Server) Reason() error { return &ExitError{s.process.Exit()} }
