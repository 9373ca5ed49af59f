package launcher

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// pipes are the standard files of one process, read end first. They are bare
// descriptors: an os.File would make the process's ends non-blocking too.
type pipes struct {
	stdin, stdout, stderr [2]int
}

func newPipes() (*pipes, error) {
	var p pipes
	var made []int
	for _, pair := range []*[2]int{&p.stdin, &p.stdout, &p.stderr} {
		if err := syscall.Pipe2(pair[:], syscall.O_CLOEXEC); err != nil {
			closeAll(made)
			return nil, fmt.Errorf("make a pipe: %w", err)
		}
		made = append(made, pair[:]...)
	}
	for _, ours := range []int{p.stdin[1], p.stdout[0], p.stderr[0]} {
		if err := syscall.SetNonblock(ours, true); err != nil {
			closeAll(made)
			return nil, fmt.Errorf("prepare a pipe: %w", err)
		}
	}
	return &p, nil
}

// closeTheirs closes the ends of the process.
func (p *pipes) closeTheirs() {
	closeAll([]int{p.stdin[0], p.stdout[1], p.stderr[1]})
}

// lookup finds the program again for each start, because it may be on a volume that
// changes. It does not change a path, which is relative to the process's working
// directory.
func lookup(command string) (string, error) {
	if strings.ContainsRune(command, '/') {
		return command, nil
	}
	path, err := exec.LookPath(command)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, exec.ErrNotFound):
		return "", &StartError{fmt.Sprintf("start command %q: not found in PATH", command)}
	default:
		return "", &StartError{fmt.Sprintf("start command %q: %v", command, errors.Unwrap(err))}
	}
}

// startError tells temporary errors from permanent ones.
func startError(command, path string, err error) error {
	switch {
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return &RefusedError{ReasonFork, err.Error()}
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return &RefusedError{ReasonDescriptors, err.Error()}
	case errors.Is(err, syscall.ENOENT):
		if _, statErr := os.Stat(path); statErr == nil {
			return &StartError{fmt.Sprintf("start command %q: %s is there, but its interpreter, loader or working directory is not", command, path)}
		}
	}
	return &StartError{fmt.Sprintf("start command %q: %v", command, err)}
}
