package mcpprobe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// Class says what an error means for the state of the server.
type Class string

// The classes of errors.
const (
	// Unauthorized: the server answers and wants credentials (401, 403).
	Unauthorized Class = "Unauthorized"
	// Busy: the server answers that it cannot serve now (429, 5xx). Try again later.
	Busy Class = "Busy"
	// Unreachable: no server listens at the address.
	Unreachable Class = "Unreachable"
	// Timeout: the server took longer to answer than the context allows.
	Timeout Class = "Timeout"
	// Closed: the connection, the session or the process ended before the answer.
	Closed Class = "Closed"
	// Rejected: the server answered, with an error.
	Rejected Class = "Rejected"
	// Protocol: the server sends what is not MCP.
	Protocol Class = "Protocol"
	// TooLarge: the server exceeds a limit; the error wraps a *LimitError.
	TooLarge Class = "TooLarge"
	// Canceled: the caller has given up.
	Canceled Class = "Canceled"
)

// Error is why a probe failed. Its text is safe to show: it holds no header and no query
// of a URL, and what it holds of the server's words is short and printable.
type Error struct {
	Class      Class
	Op         string        // what failed, such as "tools/list"
	Status     int           // of HTTP, or 0
	Asked      string        // the request with this status, such as "POST http://127.0.0.1:3000/mcp"
	Code       int           // of JSON-RPC, or 0
	RetryAfter time.Duration // of a busy server, or 0
	Detail     string
	// Failed is true if the answer comes from an adapter, and its server fails: it is not busy.
	Failed bool
	// Unheard is true if the other side has accepted a connection, and closed or reset it before the
	// first byte of any answer.
	Unheard bool
	Err     error // the cause, for errors.Is and errors.As; may be nil
}

func (e *Error) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "probe %s: %s", e.Op, e.Class)
	switch {
	case e.Status != 0 && e.Asked != "":
		fmt.Fprintf(&text, " (%s: HTTP %d)", e.Asked, e.Status)
	case e.Status != 0:
		fmt.Fprintf(&text, " (HTTP %d)", e.Status)
	}
	if e.Code != 0 {
		fmt.Fprintf(&text, " (code %d)", e.Code)
	}
	switch {
	case e.Detail != "":
		text.WriteString(": " + e.Detail)
	case e.Err != nil:
		text.WriteString(": " + e.Err.Error())
	}
	return text.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of an error of this package, and Protocol for any other.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return Protocol
}

// The limits that a LimitError can name.
const (
	LimitPages        = "pages of a list"
	LimitItems        = "items of a list"
	LimitItemBytes    = "bytes of an item"
	LimitReplyBytes   = "bytes of a reply"
	LimitCatalogBytes = "bytes of the catalog"
	LimitCursors      = "repetitions of a cursor"
)

// LimitError says that a server exceeds a limit.
type LimitError struct {
	What  string // one of the limits above
	Limit int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("more than %d %s", e.Limit, e.What)
}

func tooLarge(what string, limit int) *Error {
	return &Error{Class: TooLarge, Err: &LimitError{What: what, Limit: limit}}
}

func protocolError(detail string) *Error {
	return &Error{Class: Protocol, Detail: detail}
}

// fromSDK returns an error of the SDK with its class, for want of a better reason.
func fromSDK(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return &Error{Class: Rejected, Code: int(e.Code), Detail: clean(e.Message)}
	}
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, mcp.ErrConnectionClosed, mcp.ErrSessionMissing} {
		if errors.Is(err, closed) {
			return &Error{Class: Closed, Detail: "the connection ended before the answer", Err: closed}
		}
	}
	return protocolError(clean(err.Error()))
}

// fromContext returns the error of a call whose context has ended.
func fromContext(err error) *Error {
	if errors.Is(err, context.Canceled) {
		return &Error{Class: Canceled, Err: err}
	}
	return &Error{Class: Timeout, Err: err}
}

// shown bounds the text of a server in an error.
const shown = 200

// clean makes the text of a server short and printable.
func clean(text string) string { return rpc.Legible(text, shown) }
