package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// stopSlack is how much longer than its grace a process may take to end before the
// adapter takes the process for lost.
const stopSlack = 10 * time.Second

// serve handles one connection from beginning to end. It gives its slot among the
// strangers back after the hello.
func (h *Host) serve(c *conn) {
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(h.ctx, func() { _ = c.Close() })()
	hello, files, err := h.greet(c)
	<-h.strange
	if hello.Role != roleProcess {
		closeAll(files) // only the hello of a process passes descriptors
	}
	if err == nil {
		switch hello.Role {
		case roleControl:
			err = h.serveControl(c, hello)
		case roleProcess:
			err = h.serveProcess(c, hello, files)
		case roleDrain:
			err = h.serveDrain(c)
		default:
			err = fmt.Errorf("unknown role %q", hello.Role)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) && h.ctx.Err() == nil {
		h.opts.Logf("connection closed: %v", err)
	}
}

func (h *Host) greet(c *conn) (message, []int, error) {
	if err := h.allowed(c); err != nil {
		return message{}, nil, err
	}
	hello, files, err := c.receiveHello()
	if err != nil {
		return message{}, nil, err
	}
	if hello.Kind != kindHello {
		err = fmt.Errorf("begins with %q instead of a hello", hello.Kind)
	} else if hello.Version != protocolVersion {
		err = fmt.Errorf("protocol version %d is not spoken here, which is %d", hello.Version, protocolVersion)
		_ = c.send(message{Kind: kindReject, Text: err.Error()})
	}
	if err != nil {
		closeAll(files)
		return message{}, nil, err
	}
	return hello, files, nil
}

// serveControl serves the control connection of a launcher.
func (h *Host) serveControl(c *conn, hello message) error {
	if hello.Epoch == "" {
		return errors.New("control connection without an epoch")
	}
	l := newLink(c, hello)
	defer l.close()
	if !h.claim(l) {
		_ = c.send(message{Kind: kindReject, Text: "another launcher is connected"})
		return errors.New("a second launcher was turned away")
	}
	defer h.release()
	if err := c.send(message{Kind: kindWelcome, Version: protocolVersion}); err != nil {
		return err
	}
	h.publish()
	h.opts.Logf("launcher connected")
	for {
		m, err := c.receive()
		if err != nil {
			return fmt.Errorf("launcher gone: %w", err)
		}
		var got outcome
		switch m.Kind {
		case kindRefused, kindFailed:
			got.err = m.err()
		case kindUsage:
			got.memory = m.Memory
		default:
			return fmt.Errorf("unexpected %q on the control connection", m.Kind)
		}
		if err := l.answer(m.ID, got); err != nil {
			return err
		}
	}
}

// serveProcess is the adapter's end of a lifeline.
func (h *Host) serveProcess(c *conn, hello message, files []int) error {
	l, _ := h.current()
	if l == nil || l.epoch != hello.Epoch {
		closeAll(files)
		return errors.New("the process belongs to no connected launcher")
	}
	stdin, stdout, err := standardFiles(files)
	if err != nil {
		return err
	}
	process := &Process{PID: max(hello.PID, 0), Stdin: stdin, Stdout: stdout, stop: c.stop, exited: newExitEvent()}
	forget, err := l.adopt(hello.ID, c, process)
	if err != nil {
		_ = stdin.Close()
		_ = stdout.Close()
		return err
	}
	defer forget()
	m, err := c.receive()
	if err == nil && (m.Kind != kindExit || m.Exit == nil) {
		err = fmt.Errorf("unexpected %q on a lifeline", m.Kind)
	}
	if err != nil {
		process.exited.come(Exit{Lost: true})
		return fmt.Errorf("process %d lost: %w", process.PID, err)
	}
	process.exited.come(m.Exit.exit())
	return nil
}

// standardFiles makes files of the descriptors in the hello of a process.
func standardFiles(files []int) (stdin, stdout *os.File, err error) {
	if len(files) != passedFiles {
		closeAll(files)
		return nil, nil, fmt.Errorf("process with %d descriptors", len(files))
	}
	stdin, err = pipeEnd(files[0], syscall.O_WRONLY, "stdin")
	if err != nil {
		closeAll(files)
		return nil, nil, err
	}
	stdout, err = pipeEnd(files[1], syscall.O_RDONLY, "stdout")
	if err != nil {
		_ = stdin.Close()
		closeAll(files[1:])
		return nil, nil, err
	}
	return stdin, stdout, nil
}

// stop asks the launcher to end the process. If that takes too long, the adapter takes
// the process for lost.
func (c *conn) stop(grace time.Duration) {
	grace = max(grace, 0)
	if err := c.send(message{Kind: kindStop, Grace: grace.Milliseconds()}); err != nil {
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(grace + stopSlack))
}

func (h *Host) serveDrain(c *conn) error {
	select {
	case h.drains <- struct{}{}:
		defer func() { <-h.drains }()
	default:
		return errors.New("too many drain hooks")
	}
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	h.serving.Go(func() {
		defer cancel()
		_, _ = c.receive() // the hook sends nothing more; this waits for its end
	})
	h.opts.Drain(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return c.send(message{Kind: kindDrained})
}
