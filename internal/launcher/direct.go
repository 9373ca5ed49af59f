package launcher

import (
	"context"
	"os"
)

// Direct starts processes as children of this very process, without a socket and
// another container.
type Direct struct {
	super *supervisor
}

// NewDirect starts a supervisor. As PID 1 of a container it collects every child of this
// process. Otherwise it leaves children alone that other code has started.
func NewDirect(opts Options) (*Direct, error) {
	super, err := newSupervisor(opts, os.Getpid() == 1)
	if err != nil {
		return nil, err
	}
	return &Direct{super: super}, nil
}

// Spawn starts one process. The label goes in front of its lines in the log. The
// error is a *RefusedError, a *StartError or the context's.
func (d *Direct) Spawn(ctx context.Context, label string) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := d.super.start(label)
	if err != nil {
		return nil, err
	}
	stdin := os.NewFile(uintptr(c.stdin), "stdin")
	stdout := os.NewFile(uintptr(c.stdout), "stdout")
	return &Process{PID: c.pid, Stdin: stdin, Stdout: stdout, stop: c.end, exited: c.exited}, nil
}

// Close ends every process, in order, and waits for the end, at most for the grace and a
// little more.
func (d *Direct) Close() error {
	err := d.super.close()
	d.super.closeLog()
	return err
}
