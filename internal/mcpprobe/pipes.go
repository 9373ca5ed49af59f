package mcpprobe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// pipeTransport connects to a process over its standard input and output. The SDK's own
// transport gives up at the first line other than a message.
type pipeTransport struct {
	guard           *guard
	reader          io.Reader
	writer          io.WriteCloser
	framing         rpc.Framing
	discoverTimeout time.Duration

	closed chan struct{}
	once   sync.Once
}

func newPipeTransport(g *guard, target Target, discoverTimeout time.Duration) *pipeTransport {
	return &pipeTransport{
		guard: g, reader: target.reader, writer: target.writer, framing: target.framing,
		discoverTimeout: discoverTimeout, closed: make(chan struct{}),
	}
}

// Connect starts reading and writing.
func (t *pipeTransport) Connect(context.Context) (mcp.Connection, error) {
	c := &pipeConnection{
		pipeTransport: t,
		messages:      make(chan jsonrpc.Message),
		frames:        make(chan frame),
		ended:         make(chan struct{}),
	}
	t.guard.reached.Store(true)
	go c.readAll()
	go c.writeAll()
	return c, nil
}

// frame is a line to write, and a channel for the error of the write.
type frame struct {
	line    []byte
	written chan error
}

type pipeConnection struct {
	*pipeTransport
	messages chan jsonrpc.Message
	frames   chan frame
	ended    chan struct{} // closed at the end of the output
}

// readAll reads until the process has closed its output, whatever happens to the session,
// so that a full pipe never blocks the process.
func (c *pipeConnection) readAll() {
	limit := c.guard.limits.ReplyBytes
	source := c.reader
	if c.framing == rpc.Newline {
		source = &shortJunk{source: source}
	}
	frames := rpc.NewFrameReader(source, c.framing, limit, c.guard.skip)
	for {
		line, err := frames.Next()
		if err != nil {
			c.lost(readFailure(err, limit))
			break
		}
		c.receiveAll(line)
	}
	close(c.ended)
	_, _ = io.Copy(io.Discard, c.reader)
}

// lost breaks the session, unless the probe has ended it. In that case the end of the
// process is only a consequence, and the guard has a better reason.
func (c *pipeConnection) lost(err *Error) {
	select {
	case <-c.closed:
	default:
		c.guard.fail(err)
	}
}

func readFailure(err error, limit int) *Error {
	if errors.Is(err, rpc.ErrFrameTooLong) {
		return tooLarge(LimitReplyBytes, limit)
	}
	return &Error{Class: Closed, Detail: "the process closed its output", Err: io.EOF}
}

// receiveAll takes the messages of a batch, which servers of 2025-03-26 may send. It
// skips a malformed batch as a whole.
func (c *pipeConnection) receiveAll(line []byte) {
	switch {
	case !rpc.IsBatch(line):
		c.receive(line)
	case rpc.Batch(line, func([]byte) error { return nil }) != nil:
		c.guard.skip(line)
	default:
		_ = rpc.Batch(line, func(element []byte) error { c.receive(element); return nil })
	}
}

// receive hands a message on, or skips it.
func (c *pipeConnection) receive(line []byte) {
	message, err := c.understand(line)
	e, fatal := errors.AsType[*Error](err)
	switch {
	case fatal:
		c.guard.fail(e)
	case err != nil:
		c.guard.skip(line)
	case message != nil:
		c.deliver(message)
	}
}

// understand returns what the SDK is to see of a line, or nil for nothing.
func (c *pipeConnection) understand(line []byte) (jsonrpc.Message, error) {
	visible, err := c.guard.incoming(line)
	if visible == nil || err != nil {
		return nil, err
	}
	return jsonrpc.DecodeMessage(visible)
}

func (c *pipeConnection) deliver(message jsonrpc.Message) {
	select {
	case c.messages <- message:
	case <-c.closed:
	}
}

// Read returns the next message of the process.
func (c *pipeConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case message := <-c.messages:
		return message, nil
	case <-c.ended:
		return nil, io.EOF
	case <-c.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write sends a message to the process. It returns when the context ends, even if the
// process does not read. Another goroutine then writes the rest of the line, so that the
// next message does not get into the middle of it.
func (c *pipeConnection) Write(ctx context.Context, message jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(message)
	if err != nil {
		return err
	}
	sent, err := c.guard.outgoing(data)
	if err != nil {
		return err
	}
	if sent.kind == rpc.Response {
		defer c.guard.answered()
	}
	f := frame{line: rpc.AppendFrame(nil, data, c.framing), written: make(chan error, 1)}
	select {
	case c.frames <- f:
	case <-c.closed:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err = <-f.written:
	case <-c.closed:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
	if err == nil && sent.method == methodDiscover {
		time.AfterFunc(c.discoverTimeout, func() { c.giveUp(sent.id, message) })
	}
	return err
}

// giveUp answers server/discover in the place of a silent process, so that the SDK sends
// initialize, unless the options forbid that.
func (c *pipeConnection) giveUp(id string, message jsonrpc.Message) {
	request, ok := message.(*jsonrpc.Request)
	if !ok || c.guard.discoverOnly || !c.guard.abandon(id) {
		return
	}
	c.deliver(&jsonrpc.Response{ID: request.ID, Error: &jsonrpc.Error{
		Code: jsonrpc.CodeMethodNotFound, Message: "no answer to " + methodDiscover,
	}})
}

func (c *pipeConnection) writeAll() {
	for {
		select {
		case f := <-c.frames:
			_, err := c.writer.Write(f.line)
			if err != nil {
				c.lost(&Error{Class: Closed, Detail: "the process closed its input", Err: io.ErrClosedPipe})
			}
			f.written <- err
		case <-c.closed:
			return
		}
	}
}

// Close closes the input of the process.
func (c *pipeConnection) Close() error { return c.close() }

func (t *pipeTransport) close() error {
	var err error
	t.once.Do(func() {
		close(t.closed)
		err = t.writer.Close()
	})
	return err
}

// SessionID is empty: a process is its own session.
func (*pipeConnection) SessionID() string { return "" }

// junkBytes is how much of a line shortJunk lets through if it cannot be a message.
const junkBytes = 4 << 10

// shortJunk shortens lines that cannot be messages, by their first byte, so that a long
// one does not count as too large a message.
type shortJunk struct {
	source io.Reader
	state  lineState
	taken  int // bytes of the line that it has let through
}

type lineState uint8

const (
	lineStart lineState = iota
	lineMessage
	lineJunk
)

func (s *shortJunk) Read(p []byte) (int, error) {
	for {
		n, err := s.source.Read(p)
		kept := p[:0]
		for rest := p[:n]; len(rest) > 0; {
			var line []byte
			line, rest = cutLine(rest)
			kept = s.keep(kept, line)
		}
		if len(kept) > 0 || err != nil || n == 0 {
			return len(kept), err
		}
	}
}

// cutLine cuts behind the first line break.
func cutLine(data []byte) (line, rest []byte) {
	if end := bytes.IndexByte(data, '\n'); end >= 0 {
		return data[:end+1], data[end+1:]
	}
	return data, nil
}

// keep appends the part of a line that shortJunk lets through.
func (s *shortJunk) keep(kept, part []byte) []byte {
	ends := part[len(part)-1] == '\n'
	if s.state == lineStart {
		s.state = kindOfLine(part)
	}
	if s.state != lineMessage {
		text := bytes.TrimSuffix(part, []byte("\n"))
		text = text[:min(len(text), junkBytes-s.taken)]
		s.taken += len(text)
		kept = append(kept, text...)
		part = part[len(part):]
		if ends {
			kept = append(kept, '\n')
		}
	}
	if ends {
		s.state, s.taken = lineStart, 0
	}
	return append(kept, part...)
}

// kindOfLine decides by the first byte after white space, if there is one yet.
func kindOfLine(part []byte) lineState {
	for _, c := range part {
		switch c {
		case ' ', '\t', '\r', '\n', 0xEF, 0xBB, 0xBF: // the last three are a byte order mark
		case '{', '[':
			return lineMessage
		default:
			return lineJunk
		}
	}
	return lineStart
}
