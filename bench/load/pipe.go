package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// Local is a session with a process of ours and nothing in between: what the pipe and
// the server cost by themselves.
type Local struct {
	process *exec.Cmd
	stdin   io.WriteCloser
	stdout  *bufio.Reader
	line    []byte
}

// Start starts a server and initializes it.
func Start(ctx context.Context, command ...string) (*Local, error) {
	l := &Local{process: exec.CommandContext(ctx, command[0], command[1:]...)}
	stdin, err := l.process.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	stdout, err := l.process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	l.stdin, l.stdout = stdin, bufio.NewReaderSize(stdout, 64<<10)
	if err := l.process.Start(); err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	for _, message := range []string{initialize, initialized} {
		if _, err := l.stdin.Write([]byte(message + "\n")); err != nil {
			return nil, errors.Join(fmt.Errorf("initialize: %w", err), l.Close())
		}
	}
	answer, err := l.next()
	if err != nil || !bytes.Contains(answer, []byte(`"result":`)) {
		return nil, errors.Join(fmt.Errorf("initialize: %q, %w", answer, err), l.Close())
	}
	return l, nil
}

// next is the next line, until the one after it.
func (l *Local) next() ([]byte, error) {
	l.line = l.line[:0]
	for {
		part, err := l.stdout.ReadSlice('\n')
		if err == nil && len(l.line) == 0 {
			return part, nil
		}
		l.line = append(l.line, part...)
		if err == nil {
			return l.line, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("read from server: %w", err)
		}
	}
}

// Do implements Session.
func (l *Local) Do(call *Call, each func(message []byte) error) error {
	if _, err := l.stdin.Write(append(call.append(nil), '\n')); err != nil {
		return fmt.Errorf("write to server: %w", err)
	}
	for {
		line, err := l.next()
		if err != nil {
			return err
		}
		if isAnswer(line) {
			return call.verify(line)
		}
		if err := each(line); err != nil {
			return err
		}
	}
}

// PID is the server's process.
func (l *Local) PID() int { return l.process.Process.Pid }

// Close ends the server.
func (l *Local) Close() error {
	err := l.stdin.Close()
	killed := time.AfterFunc(time.Second, func() { _ = l.process.Process.Kill() })
	defer killed.Stop()
	return errors.Join(err, l.process.Wait())
}
