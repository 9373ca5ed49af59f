package node

import (
	"bytes"
	"io"
	"sync"

	"github.com/slipway-mcp/slipway/internal/text"
)

// Streams are what a program writes to.
type Streams struct{ Out, ErrOut io.Writer }

// lineBytes bounds a line of a program: what it repeats may come from a server.
const lineBytes = 64 << 10

// Harmless passes lines on, without characters that do anything but show. A program writes what a
// server sent it, and the reader may be a terminal.
func Harmless(to io.Writer) *Lines { return &Lines{to: to} }

// Lines is a writer that passes on whole lines. Several programs can write to it.
type Lines struct {
	mu   sync.Mutex
	rest []byte
	to   io.Writer
}

// Write implements io.Writer.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 && len(l.rest) < lineBytes {
			return len(p), nil
		}
		if end < 0 {
			end = len(l.rest) - 1
		}
		if err := l.pass(l.rest[:end+1]); err != nil {
			return 0, err
		}
		l.rest = l.rest[end+1:]
	}
}

// Flush passes on what follows the last line.
func (l *Lines) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.rest = nil }()
	if len(l.rest) == 0 {
		return nil
	}
	return l.pass(l.rest)
}

func (l *Lines) pass(line []byte) error {
	_, err := io.WriteString(l.to, text.Line(string(bytes.TrimSuffix(line, []byte("\n"))), 3*lineBytes)+"\n")
	return err
}
