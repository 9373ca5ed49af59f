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
	return &pipes{s}, &pipes{s}, nil
}

// pipes are the output and the input of a process.
type pipes struct{ server *Server }

// Read reads output. The first output lets the next process start.
func (p *pipes) Read(into []byte) (int, error) {
	n, err := p.server.process.Stdout.Read(into)
	if n > 0 {
		p.server.noteOutput()
	}
	p.server.notePipe(err)
	return n, err
}

func (p *pipes) Write(text []byte) (int, error) {
	n, err := p.server.process.Stdin.Write(text)
	p.server.notePipe(err)
	return n, err
}

// Close asks the process to end by the end of its input.
func (p *pipes) Close() error {
	p.server.noteStop()
	return p.server.process.Stdin.Close()
}
