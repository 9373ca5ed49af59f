//go:build unix

package rpc

import (
	"errors"
	"io"
	"syscall"
)

// canReadNow says that a descriptor can be read without waiting.
const canReadNow = true

// ReadNow reads what a non-blocking file descriptor has. Without any it returns EAGAIN, and at
// the end io.EOF.
func ReadNow(fd uintptr, p []byte) (int, error) {
	n, err := syscall.Read(int(fd), p)
	for errors.Is(err, syscall.EINTR) {
		n, err = syscall.Read(int(fd), p)
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	return max(n, 0), err
}
