package sidecar

import (
	"context"
	"errors"
	"io"

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/wire"
)

var errKeeperDone = errors.New("the keeper is done with it")

// keepSession lets the keeper look at a server through a session: it sees lines,
// as if it had the server's standard input and output.
func keepSession(opened *session.Session) (keeper.Connection, error) {
	stream, err := opened.Open()
	if err != nil {
		opened.End(errKeeperDone)
		return keeper.Connection{}, err
	}
	output, write := io.Pipe()
	read, input := io.Pipe()
	go func() { _ = write.CloseWithError(copyEvents(write, stream, opened)) }()
	go func() { opened.End(passLines(read, stream, opened)) }()
	return keeper.Connection{
		Target: mcpprobe.Pipes(output, input),
		Close: func() {
			opened.End(errKeeperDone)
			_ = output.Close()
			_ = read.Close()
		},
		Reason: func() error { return nil },
	}, nil
}

// copyEvents writes what arrives on the stream, a line each, until the session ends.
func copyEvents(to io.Writer, stream *session.Stream, opened *session.Session) error {
	defer stream.Detach()
	for {
		event, ok, end := stream.Take()
		switch {
		case ok:
			if _, err := to.Write(wire.AppendFrame(nil, event.Message, wire.Newline)); err != nil {
				return err
			}
		case end:
			return io.EOF
		default:
			select {
			case <-stream.Ready():
			case <-opened.Done():
			}
		}
	}
}

// passLines hands the keeper's messages to the session.
func passLines(from io.Reader, stream *session.Stream, opened *session.Session) error {
	lines := wire.NewFrameReader(from, wire.Newline, pendingBytes, nil)
	for {
		line, err := lines.Next()
		if err != nil {
			return errKeeperDone
		}
		envelope, err := wire.Scan(line)
		if err != nil {
			return err
		}
		if err := passLine(session.Message{Bytes: line, Envelope: envelope}, stream, opened); err != nil {
			return err
		}
	}
}

func passLine(message session.Message, stream *session.Stream, opened *session.Session) error {
	if message.Envelope.Kind == wire.Request {
		return opened.CallOn(context.Background(), stream, message)
	}
	return opened.Tell(context.Background(), message)
}
