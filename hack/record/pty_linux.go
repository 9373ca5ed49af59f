package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// openTerminal opens a pseudo-terminal of a fixed size: the end that is read here, and the end that a
// command runs on.
func openTerminal(columns, rows int) (ours, theirs *os.File, err error) {
	ours, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open terminal: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ours.Close())
		}
	}()
	var number int
	// Not by Fd, which would make reads block beyond their deadline.
	connection, err := ours.SyscallConn()
	if err != nil {
		return nil, nil, fmt.Errorf("open terminal: %w", err)
	}
	var failed error
	err = connection.Control(func(fd uintptr) {
		if number, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); failed != nil {
			return
		}
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed != nil {
			return
		}
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)}) //nolint:gosec // The script's size is bounded.
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, nil, fmt.Errorf("set up terminal: %w", err)
	}
	theirs, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open terminal: %w", err)
	}
	return ours, theirs, nil
}

// onTerminal has a command run in a session of its own, whose terminal is its standard input.
func onTerminal(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
}

// inGroup has a command run in a process group of its own, so that endGroup ends what it started, too.
func inGroup(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func endGroup(command *exec.Cmd) error {
	err := syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// isHungUp says that no process has the terminal open any more.
func isHungUp(err error) bool { return errors.Is(err, syscall.EIO) }
