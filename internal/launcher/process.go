package launcher

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// ErrNoLauncher means that no launcher is connected, so nothing can be started.
var ErrNoLauncher = errors.New("no launcher is connected")

// Reason says which resource a process was refused for.
type Reason string

// The reasons for a refusal. All of them can pass.
const (
	ReasonMemory      Reason = "memory"      // near the container's memory limit
	ReasonPIDs        Reason = "pids"        // near the container's limit of processes and threads
	ReasonFork        Reason = "fork"        // the kernel refused (EAGAIN or ENOMEM)
	ReasonDescriptors Reason = "descriptors" // out of file descriptors
	ReasonStopping    Reason = "stopping"    // the launcher is on its way out
)

// RefusedError means that there is no room for another process now.
type RefusedError struct {
	Reason  Reason
	Message string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("process refused (%s): %s", e.Reason, e.Message)
}

// StartError means that the command cannot be started: it is not there, or is
// not a program.
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

// String is one line without the standard error.
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

// Process is one started command. Both files belong to the caller, who closes
// them; they are pipes that do not block a thread.
type Process struct {
	PID    int      // as the launcher sees it
	Stdin  *os.File // write end
	Stdout *os.File // read end

	stop   func(grace time.Duration)
	exited *exitEvent
}

// Stop asks the process group to end and returns at once: TERM, and KILL after
// the grace. Without grace it is KILL at once. A later call can only shorten the
// grace of an earlier one. Closing Stdin first is the kinder way.
func (p *Process) Stop(grace time.Duration) { p.stop(grace) }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.exited.done }

// AfterEnd has a function called, in a goroutine of its own, when the process has
// ended, or now if it has.
func (p *Process) AfterEnd(f func()) { p.exited.then(f) }

// Exit waits for the end of the process and says how it was.
func (p *Process) Exit() Exit {
	<-p.exited.done
	return p.exited.exit
}

// abandon ends a process that nobody is going to use.
func (p *Process) abandon() {
	_ = p.Stdin.Close()
	_ = p.Stdout.Close()
	p.Stop(0)
}
