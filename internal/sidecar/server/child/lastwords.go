package child

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// exitGrace is how long Serve reads on after the end of a process. What the process wrote
// is in the pipe by then, but a child of its own may hold the pipe open.
const exitGrace = 50 * time.Millisecond

// lastBytes bounds what a process can leave in its pipe: the largest size of a pipe.
const lastBytes = 1 << 20

// lastWords reads all that a process has written, also when the receiver of its messages
// is slow. Without it, a read deadline in the past would hide what is still in the pipe.
type lastWords struct {
	output *os.File
	left   int // to read after the end of the process
}

// SyscallConn is for readers that wait without a buffer. They fall back to Read.
func (l *lastWords) SyscallConn() (syscall.RawConn, error) { return l.output.SyscallConn() }

func (l *lastWords) Read(p []byte) (int, error) {
	n, err := l.output.Read(p)
	if !errors.Is(err, os.ErrDeadlineExceeded) || l.left <= 0 || len(p) == 0 {
		return n, err
	}
	n, err = readNow(l.output, p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// readNow reads what the pipe holds and ignores the deadline. A later deadline would not
// do: a slow receiver could miss that, too.
func readNow(output *os.File, p []byte) (n int, err error) {
	connection, err := output.SyscallConn()
	if err != nil {
		return 0, err
	}
	var readErr error
	err = connection.Control(func(fd uintptr) {
		for n, readErr = syscall.Read(int(fd), p); errors.Is(readErr, syscall.EINTR); {
			n, readErr = syscall.Read(int(fd), p)
		}
	})
	switch {
	case err != nil:
		return 0, err
	case errors.Is(readErr, syscall.EAGAIN):
		return 0, os.ErrDeadlineExceeded
	case readErr != nil:
		return 0, readErr
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
