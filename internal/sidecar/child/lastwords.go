package child

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// exitGrace is how long more output of a process that has ended is waited for: what
// it wrote last is there already, but others may hold its output open.
const exitGrace = 50 * time.Millisecond

// lastBytes is how much such a process can have left behind: the largest pipe.
const lastBytes = 1 << 20

// lastWords reads all that a process has written, also when whoever takes its
// messages is slow: a read deadline that has passed hides what is in the pipe.
type lastWords struct {
	output *os.File
	left   int // once the process has ended
}

// SyscallConn is for readers that wait without a buffer. What they cannot read they read
// by Read.
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

// readNow reads what the pipe holds and ignores the deadline. With a new deadline, too, a
// read could begin too late.
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
