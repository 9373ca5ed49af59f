package launcher

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// ErrNoLauncher means that no launcher is connected to start processes.
var ErrNoLauncher = errors.New("no launcher is connected")

// Reason names the resource that lacks room for another process.
type Reason string

// The reasons for a refusal. All of them are temporary.
const (
	ReasonMemory      Reason = "memory"      // near the container's memory limit
	ReasonPIDs        Reason = "pids"        // near the container's limit of processes and threads
	ReasonFork        Reason = "fork"        // the kernel refused (EAGAIN or ENOMEM)
	ReasonDescriptors Reason = "descriptors" // out of file descriptors
	ReasonStopping    Reason = "stopping"    // the launcher is ending
)

// RefusedError means that there is no room for another process now.
type RefusedError struct {
	Reason  Reason
	Message string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("process refused (%s): %s", e.Reason, e.Message)
}

// StartError means that the command cannot start: the file does not exist, or is no
// program.
type StartError struct {
	Message string
}

func (e *StartError) Error() string { return e.Message }

// Exit is how a process ended.
type Exit struct {
	Code   int            // the exit code, unless a signal ended the process
	Signal syscall.Signal // the signal that ended it, or 0
	OOM    bool           // the kernel seems to have killed it for memory
	Stderr string         // the last lines that it wrote to standard error
	// StderrHead is the first lines that it wrote, if Stderr is not everything. Launchers
	// of earlier releases do not send it.
	StderrHead string
	Lost       bool // the exit is unknown: the connection to the launcher broke
}

// String returns one line, without the standard error.
func (e Exit) String() string {
	switch {
	case e.Lost:
		return "the connection to its container broke"
	case e.OOM:
		return "out of memory: killed by the kernel"
	case e.Signal != 0:
		return "signal " + strconv.Itoa(int(e.Signal)) + " (" + e.Signal.String() + ")"
	}
	return "exit code " + strconv.Itoa(e.Code)
}

// signalCode plus the number of a signal is the exit code for it, as shells and container
// runtimes have it.
const signalCode = 128

// ProcessCode returns the exit code of a program that ends as this process did.
func (e Exit) ProcessCode() int {
	if e.Signal != 0 {
		return signalCode + int(e.Signal)
	}
	return e.Code
}

// Process is one started command. The caller closes both files. They are pipes that do
// not block a thread.
type Process struct {
	PID    int      // in the PID namespace of the launcher
	Stdin  *os.File // write end
	Stdout *os.File // read end

	stop   func(grace time.Duration)
	exited *exitEvent
}

// Stop ends the process group by TERM, and by KILL after the grace. Without grace it
// sends KILL at once. It does not wait. A later call can only shorten the grace of an
// earlier one. A caller that wants the process to end by itself closes Stdin first.
func (p *Process) Stop(grace time.Duration) { p.stop(grace) }

// Done returns a channel that closes when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.exited.done }

// AfterEnd calls a function, in a goroutine of its own, when the process has ended, or at
// once if it has.
func (p *Process) AfterEnd(f func()) { p.exited.then(f) }

// Exit waits for the end of the process and returns how it ended.
func (p *Process) Exit() Exit {
	<-p.exited.done
	return p.exited.exit
}

// abandon ends a process whose caller has given it up.
func (p *Process) abandon() {
	_ = p.Stdin.Close()
	_ = p.Stdout.Close()
	p.Stop(0)
}
