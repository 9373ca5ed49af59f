package child

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/internal/diagnosis"
	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/rpc"
)

// ExitError says how a server's process ended, and what it wrote to standard error last. The status of
// an MCPServer shows it. Clients get what fault.ForClients makes of it.
type ExitError struct{ launcher.Exit }

// Brief returns the error without what the process wrote.
func (e *ExitError) Brief() string { return "the server's process ended: " + e.String() }

func (e *ExitError) Error() string {
	text := e.Brief()
	if lines := diagnosis.Lines(e.StderrHead, e.Stderr); lines != "" {
		text += "; it wrote on standard error: " + lines // the manager looks for "on standard error: "
	}
	return text
}

// Done returns a channel that closes when the process has ended.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Reason waits for the end of the process and returns how it ended, or nil if the adapter has asked
// it to end.
func (s *Server) Reason() error {
	exit := s.process.Exit()
	if s.stopped.Load() {
		return nil
	}
	return &ExitError{exit}
}

// exitGrace is how long Serve reads on after the end of a process. All output is in the pipe by then,
// but a grandchild may hold the pipe open.
const exitGrace = 50 * time.Millisecond

// remainingBytes bounds what a process can leave in its pipe: it is the largest size of a pipe.
const remainingBytes = 1 << 20

// remainingReader reads all output of a process, also if the receiver of its messages is slow. An
// os.File would not read what remains in the pipe once the read deadline has passed.
type remainingReader struct {
	output *os.File
	left   int // bytes that may be read after the deadline
}

// SyscallConn is for readers that wait without a buffer. They call Read, too.
func (r *remainingReader) SyscallConn() (syscall.RawConn, error) { return r.output.SyscallConn() }

func (r *remainingReader) Read(p []byte) (int, error) {
	n, err := r.output.Read(p)
	if !errors.Is(err, os.ErrDeadlineExceeded) || r.left <= 0 || len(p) == 0 {
		return n, err
	}
	n, err = readNow(r.output, p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// readNow reads what is in the pipe, and ignores the deadline. A later deadline would not help,
// because a slow receiver could miss that, too.
func readNow(output *os.File, p []byte) (n int, err error) {
	connection, err := output.SyscallConn()
	if err != nil {
		return 0, err
	}
	var readErr error
	err = connection.Control(func(fd uintptr) {
		n, readErr = rpc.ReadNow(fd, p)
	})
	switch {
	case err != nil:
		return 0, err
	case errors.Is(readErr, syscall.EAGAIN):
		return 0, os.ErrDeadlineExceeded
	}
	return n, readErr
}
