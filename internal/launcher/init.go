package launcher

import (
	"os"
	"os/signal"
	"syscall"
)

const (
	// lastSignal is the highest number of a signal on Linux.
	lastSignal = 64

	// signalQueue is how many signals wait while the launcher passes another one on.
	signalQueue = 64
)

// Init runs one command as PID 1 of a container should. It passes every signal on to the
// process, collects all dead children, and returns how the process ended. The error is a
// *StartError or a *RefusedError.
//
// The kernel ignores a signal for PID 1 if PID 1 has no handler for it. A Node.js server
// without a handler for TERM, for example, goes on until the kubelet kills it. As a child
// of the launcher it ends.
//
// The process gets the signals, and no other process does: without the launcher it would
// be PID 1, and the only one that the kubelet sends TERM to. A server that ends its own
// children does not expect a second signal at them. The process leads a group of its own,
// as PID 1 does. So a server that signals its group does not reach the launcher, which
// would pass that on. When the process has ended the launcher ends as well, and with PID 1
// the kernel kills the rest of the container.
//
// Standard input, output and error are those of the launcher, as are the environment and
// the working directory.
func Init(command []string) (Exit, error) {
	ParkThreads(spareThreads)
	// Before the start, so that no signal is lost.
	signals, died := make(chan os.Signal, signalQueue), make(chan os.Signal, 1)
	signal.Notify(signals, passedOn()...)
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(signals)
	defer signal.Stop(died)

	path, err := lookup(command[0])
	if err != nil {
		return Exit{}, err
	}
	pid, err := syscall.ForkExec(path, command, &syscall.ProcAttr{ //nolint:gosec // running the user's command is what it is for
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return Exit{}, startError(command[0], path, err)
	}
	for {
		select {
		case received := <-signals:
			_ = syscall.Kill(pid, received.(syscall.Signal)) // not collected yet, so that the PID is still its own
		case <-died:
			if status, ended := collectAll(pid); ended {
				return exitOfStatus(status), nil
			}
		}
	}
}

// passedOn returns the signals that the process gets. It does not get those that no
// program can catch, those that are about the launcher itself, and URG, with which Go's
// runtime interrupts its own threads.
func passedOn() []os.Signal {
	var all []os.Signal
	for number := syscall.Signal(1); number <= lastSignal; number++ {
		switch number {
		case syscall.SIGKILL, syscall.SIGSTOP,
			syscall.SIGCHLD, syscall.SIGPIPE, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGURG,
			syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGSYS:
		default:
			all = append(all, number)
		}
	}
	return all
}

// collectAll collects all dead children, and returns the status of the one with that PID
// if it is among them.
func collectAll(pid int) (status syscall.WaitStatus, ended bool) {
	for {
		dead, err := peekDead(waitAny, 0)
		if err != nil || dead == 0 {
			return status, ended
		}
		got, err := collect(dead)
		if err != nil {
			return status, ended
		}
		if dead == pid {
			status, ended = got, true
		}
	}
}
