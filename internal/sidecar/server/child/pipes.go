package child

import (
	"errors"
	"io"
)

// errTaken says that another reader has the process's output, or that the process is dead.
var errTaken = errors.New("the output of the server process has another reader, or the process has ended")

// Pipes returns the process's output and input, for callers that use them instead of Serve and Send.
// The caller must call Close.
func (s *Server) Pipes() (output io.Reader, input io.WriteCloser, err error) {
	if !s.outputTaken.CompareAndSwap(false, true) {
		return nil, nil, errTaken
	}
	s.process.AfterEnd(func() { _ = s.process.Stdout.Close() })
	return &startedReader{s}, &stoppingWriter{s}, nil
}

// startedReader lets the next process start at the first output.
type startedReader struct{ server *Server }

func (r *startedReader) Read(p []byte) (int, error) {
	n, err := r.server.process.Stdout.Read(p)
	if n > 0 {
		r.server.started()
	}
	r.server.notePipe(err)
	return n, err
}

// stoppingWriter asks the process to end by closing its input.
type stoppingWriter struct{ server *Server }

func (w *stoppingWriter) Write(p []byte) (int, error) {
	n, err := w.server.process.Stdin.Write(p)
	w.server.notePipe(err)
	return n, err
}

func (w *stoppingWriter) Close() error {
	w.server.noteStop()
	return w.server.process.Stdin.Close()
}
