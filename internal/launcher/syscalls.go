package launcher

import (
	"errors"
	"syscall"
	"unsafe"
)

const (
	prSetChildSubreaper = 36 // <linux/prctl.h>
	waitAny             = 0  // P_ALL
	waitPID             = 1  // P_PID
)

// becomeSubreaper makes this process the parent of orphans among its descendants.
func becomeSubreaper() error {
	if _, _, errno := syscall.Syscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// exitInfo is the beginning of siginfo_t as waitid(2) fills it. Its union holds pointers,
// so that it is aligned like one.
type exitInfo struct {
	_   [3]int32
	_   [unsafe.Sizeof(uintptr(0)) - 4]byte
	pid int32
	_   [128]byte // at least the rest
}

// peekDead returns the PID of a dead child, or 0 if there is none. It does not collect
// the child, so that the PID stays taken.
func peekDead(idType, id int) (int, error) {
	for {
		var info exitInfo
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, uintptr(idType), uintptr(id),
			uintptr(unsafe.Pointer(&info)), // the kernel writes a siginfo_t, which is no longer
			syscall.WEXITED|syscall.WNOHANG|syscall.WNOWAIT, 0, 0)
		switch {
		case errno == 0:
			return int(info.pid), nil
		case errors.Is(errno, syscall.ECHILD):
			return 0, nil
		case !errors.Is(errno, syscall.EINTR):
			return 0, errno
		}
	}
}

// collect takes a dead child's status, which frees its PID.
func collect(pid int) (syscall.WaitStatus, error) {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, err
		case got != pid:
			return 0, syscall.ECHILD
		default:
			return status, nil
		}
	}
}

// statusFlags is fcntl(F_GETFL).
func statusFlags(fd int) (int, error) {
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(flags), nil
}
